// pliant.runtime._native: the runtime for Python.
#include <dlfcn.h>
#include <link.h>
#include <nanobind/stl/string.h>

#include "callable.hpp"

namespace {

// A shared object, loaded with its symbols to itself and unloaded with its last reference.
class SharedObject {
  public:
    explicit SharedObject(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (handle_) return;
        PyErr_SetString(PyExc_OSError, dlerror());
        throw nb::python_error();
    }
    ~SharedObject() { dlclose(handle_); }
    SharedObject(const SharedObject&) = delete;
    SharedObject& operator=(const SharedObject&) = delete;

    // Of this object alone: the loader also looks through the libraries that it depends on.
    uintptr_t symbol(const std::string& name) const {
        void* address = dlsym(handle_, name.c_str());
        Dl_info place{};
        void* home = nullptr;
        if (address && dladdr1(address, &place, &home, RTLD_DL_LINKMAP) && home == handle_)
            return reinterpret_cast<uintptr_t>(address);
        PyErr_Format(PyExc_KeyError, "%s", name.c_str());
        throw nb::python_error();
    }

  private:
    void* handle_;
};

int traverse(PyObject* self, visitproc visit, void* arg) {
#if PY_VERSION_HEX >= 0x03090000
    Py_VISIT(Py_TYPE(self));
#endif
    if (!nb::inst_ready(self)) return 0;
    auto* callable = nb::inst_ptr<Callable>(self);
    Py_VISIT(callable->fail.ptr());
    Py_VISIT(callable->keepalive.ptr());
    return 0;
}

int clear(PyObject* self) {
    auto* callable = nb::inst_ptr<Callable>(self);
    callable->fail.reset();
    callable->keepalive.reset();
    return 0;
}

PyType_Slot callable_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {0, nullptr},
};

nb::dict offsets() {
    nb::dict d;
#define PL_FIELD(field) d[#field] = offsetof(pl_ctx, field)
    PL_FIELD(version);
    PL_FIELD(size);
    PL_FIELD(parallel);
    PL_FIELD(arena);
    PL_FIELD(scratch);
    PL_FIELD(mark);
    PL_FIELD(release);
    PL_FIELD(output);
    PL_FIELD(weights);
    PL_FIELD(num_threads);
    PL_FIELD(error_code);
    PL_FIELD(payload);
    PL_FIELD(inputs);
    PL_FIELD(poll);
    PL_FIELD(thread);
    PL_FIELD(num_inputs);
    PL_FIELD(num_outputs);
#undef PL_FIELD
    return d;
}

}  // namespace

NB_MODULE(_native, m) {
    // What others keep at exit (torch's caches hold the globals of who calls it) is no leak of ours.
    nb::set_leak_warnings(false);
    init_tensors();
    m.attr("ABI_VERSION") = PL_ABI_VERSION;
    m.attr("CTX_OFFSETS") = offsets();
    m.def("default_threads", pl_default_threads);
    m.def("default_memory_limit", pl_default_memory_limit);
    m.def("pool_workers", pl_pool_workers);
    m.def("request_amx", [] { return pl_request_amx() == 0; });
    m.def("buffers_cached", pl_buffers_cached);
    m.def("set_buffers_cap", pl_buffers_set_cap, nb::arg("bytes"));
    m.def("trim", pl_call_trim);
    nb::class_<SharedObject>(m, "SharedObject")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def("symbol", &SharedObject::symbol, nb::arg("name"));
    nb::class_<Callable>(m, "Callable", nb::type_slots(callable_slots))
        .def(nb::init<uintptr_t, nb::handle, nb::handle, nb::handle, nb::object, nb::object, int64_t,
                      int64_t, bool>(),
             nb::arg("entry"), nb::kw_only(), nb::arg("inputs"), nb::arg("outputs"), nb::arg("weights"),
             nb::arg("fail"), nb::arg("keepalive") = nb::none(), nb::arg("threads") = 0,
             nb::arg("memory_limit") = 0, nb::arg("single") = false)
        .def("call", &Callable::call, nb::arg("inputs"), nb::arg("out") = nb::none())
        .def("__call__", [](Callable& self, nb::args inputs, nb::object out) { return self.call(inputs, out); },
             nb::arg("inputs"), nb::kw_only(), nb::arg("out") = nb::none())
        .def_prop_ro("calls", [](const Callable& self) { return self.calls.load(); })
        .def_prop_ro("copies", [](const Callable& self) { return self.copies.load(); })
        .def_prop_ro("peak_bytes", [](const Callable& self) { return self.peak_bytes.load(); });
}
