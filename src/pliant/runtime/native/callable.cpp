#include "callable.hpp"

namespace {

std::vector<TensorSpec> read_specs(nb::handle list) {
    std::vector<TensorSpec> specs;
    for (nb::handle item : list) {
        auto row = nb::cast<nb::tuple>(item);
        if (row.size() != 3 && row.size() != 4)
            throw nb::value_error("a spec is (name, dtype, ndim) or (name, dtype, ndim, compact)");
        specs.push_back({nb::borrow<nb::str>(row[0]).c_str(), nb::cast<int64_t>(row[1]),
                         nb::cast<int32_t>(row[2]), row.size() == 4 && nb::cast<bool>(row[3])});
    }
    return specs;
}

// Releases the interpreter's lock, and takes it back now and then to see whether to stop.
class Unlocked {
  public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    ~Unlocked() { PyEval_RestoreThread(state_); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

    // True when a signal's handler raised: the exception waits in the thread's state.
    static int32_t interrupted(void* self) {
        auto* u = static_cast<Unlocked*>(self);
        PyEval_RestoreThread(u->state_);
        int raised = PyErr_CheckSignals();
        u->state_ = PyEval_SaveThread();
        return raised != 0;
    }

  private:
    PyThreadState* state_;
};

// Ends a call on every way out.
struct CallGuard {
    pl_ctx* ctx;
    ~CallGuard() { pl_call_end(ctx); }
};

void raise_to(std::atomic<int64_t>& highest, int64_t value) {
    int64_t seen = highest.load(std::memory_order_relaxed);
    while (value > seen && !highest.compare_exchange_weak(seen, value)) {
    }
}

}  // namespace

Callable::Callable(uintptr_t entry, nb::handle inputs, nb::handle outputs, nb::handle weights,
                   nb::object fail, nb::object keepalive, int64_t threads, int64_t memory_limit,
                   bool single)
    : fail(std::move(fail)), keepalive(std::move(keepalive)), entry_(reinterpret_cast<pl_entry>(entry)),
      inputs_(read_specs(inputs)), outputs_(read_specs(outputs)), threads_(threads),
      memory_limit_(memory_limit), single_(single) {
    if (!entry) throw nb::value_error("the entry's address is 0");
    if (single_ && outputs_.size() != 1) throw nb::value_error("single needs exactly one output");
    try {
        for (nb::handle w : weights) {
            if (PyLong_Check(w.ptr())) {
                weights_.push_back(reinterpret_cast<void*>(nb::cast<uintptr_t>(w)));
                continue;
            }
            Py_buffer view;
            if (PyObject_GetBuffer(w.ptr(), &view, PyBUF_C_CONTIGUOUS)) throw nb::python_error();
            views_.push_back(view);
            weights_.push_back(view.buf);
        }
    } catch (...) {
        for (Py_buffer& view : views_) PyBuffer_Release(&view);
        throw;
    }
}

Callable::~Callable() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
}

void Callable::raise(int32_t code, const std::vector<int64_t>& payload, const char* detail) {
    nb::list values;
    for (int64_t v : payload) values.append(v);
    nb::object error = fail(code, nb::tuple(values), detail);
    if (!PyExceptionInstance_Check(error.ptr())) throw nb::type_error("fail() returned no exception");
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

void Callable::bind(Borrowed& slot, PyObject* object, const TensorSpec& spec, bool is_output,
                    size_t index) {
    int64_t side = is_output, position = int64_t(index);
    try {
        slot.bind(object, spec, is_output, memory_limit_);
    } catch (const ArgumentError& e) {
        raise(int32_t(e.fault), {side, position, e.a, e.b}, Py_TYPE(object)->tp_name);
    } catch (nb::python_error& e) {
        // What the object's own library said becomes the detail; control flow is not ours to catch.
        if (!e.matches(PyExc_Exception)) throw;
        if (e.matches(PyExc_MemoryError)) raise(int32_t(Fault::memory), {side, position}, "");
        nb::object text = nb::steal(PyObject_Str(e.value().ptr()));
        if (!text.is_valid()) throw nb::python_error();
        const char* utf8 = PyUnicode_AsUTF8(text.ptr());
        if (!utf8) throw nb::python_error();
        std::string detail = std::string(Py_TYPE(object)->tp_name) + ": " + utf8;
        raise(int32_t(Fault::kind), {side, position, 1}, detail.c_str());
    }
}

nb::object Callable::collect(pl_ctx* ctx, const Library* library, PyObject* const* given) {
    nb::object results = single_ ? nb::object() : nb::steal(PyTuple_New(Py_ssize_t(outputs_.size())));
    if (!single_ && !results.is_valid()) throw nb::python_error();
    for (size_t i = 0; i < outputs_.size(); i++) {
        nb::object value;
        if (given && given[i] != Py_None) {
            value = nb::borrow(given[i]);
        } else {
            pl_result result = pl_call_result(ctx, int64_t(i));
            value = library ? to_library(*library, result) : to_numpy(result);
        }
        if (single_) return value;
        PyTuple_SET_ITEM(results.ptr(), Py_ssize_t(i), value.release().ptr());
    }
    return results;
}

nb::object Callable::call(nb::handle arguments, nb::handle out) {
    if (!PyTuple_Check(arguments.ptr())) throw nb::type_error("inputs must be a tuple");
    size_t count = size_t(PyTuple_GET_SIZE(arguments.ptr()));
    if (count != inputs_.size())
        raise(int32_t(Fault::count), {0, 0, int64_t(inputs_.size()), int64_t(count)}, "");
    bool has_out = out.is_valid() && !out.is_none();
    PyObject* bare = out.ptr();
    PyObject* const* given = nullptr;
    nb::object held;  // a list could change under us while the lock is released
    if (has_out && PyTuple_Check(out.ptr())) {
        held = nb::borrow(out);
    } else if (has_out && PyList_Check(out.ptr())) {
        held = nb::steal(PyList_AsTuple(out.ptr()));
        if (!held.is_valid()) throw nb::python_error();
    }
    if (held.is_valid()) {
        size_t outs = size_t(PyTuple_GET_SIZE(held.ptr()));
        if (outs != outputs_.size())
            raise(int32_t(Fault::count), {1, 0, int64_t(outputs_.size()), int64_t(outs)}, "");
        given = reinterpret_cast<PyTupleObject*>(held.ptr())->ob_item;
    } else if (has_out) {
        if (outputs_.size() != 1)
            raise(int32_t(Fault::count), {1, 0, int64_t(outputs_.size()), 1}, "");
        given = &bare;
    }

    size_t outs = given ? outputs_.size() : 0;
    auto slots = std::make_unique<Borrowed[]>(count + outs);
    auto tensors = std::make_unique<const DLTensor*[]>(count + outs);
    const Library* library = nullptr;
    for (size_t i = 0; i < count; i++) {
        bind(slots[i], PyTuple_GET_ITEM(arguments.ptr(), Py_ssize_t(i)), inputs_[i], false, i);
        tensors[i] = &slots[i].tensor;
        if (!library) library = slots[i].library;
        if (slots[i].copied) copies.fetch_add(1, std::memory_order_relaxed);
    }
    for (size_t i = 0; i < outs; i++) {
        if (given[i] == Py_None) {
            tensors[count + i] = nullptr;
            continue;
        }
        bind(slots[count + i], given[i], outputs_[i], true, i);
        tensors[count + i] = &slots[count + i].tensor;
    }

    pl_call_args args{};
    args.inputs = tensors.get();
    args.num_inputs = int64_t(count);
    args.out = given ? tensors.get() + count : nullptr;
    args.num_outputs = int64_t(outputs_.size());
    args.weights = weights_.data();
    args.num_threads = threads_;
    args.memory_limit = memory_limit_;
    args.interrupted = Unlocked::interrupted;
    calls.fetch_add(1, std::memory_order_relaxed);
    nb::object alive = keepalive;  // the code must outlive the call even if the object is cleared

    pl_ctx* ctx;
    int32_t code;
    {
        Unlocked unlocked;
        args.interrupted_data = &unlocked;
        ctx = pl_call_begin(&args);
        code = ctx ? pl_call_finish(ctx, entry_(ctx)) : 0;
    }
    if (!ctx) raise(PL_MEMORY, {-1}, "");
    CallGuard guard{ctx};
    raise_to(peak_bytes, pl_call_peak_bytes(ctx));
    if (code == PL_INTERRUPTED && PyErr_Occurred()) throw nb::python_error();
    if (code) raise(code, {ctx->payload, ctx->payload + PL_PAYLOAD}, "");
    return collect(ctx, library, given);
}
