#include "tensors.hpp"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

namespace {

constexpr int64_t dtype_of(uint8_t code, uint8_t bits) { return int64_t(code) << 8 | bits; }
int64_t dtype_of(const DLTensor& t) { return dtype_of(t.dtype.code, t.dtype.bits); }

// NumPy's dtype of a package that takes 3 MB: it is imported where one is asked for. (The lock is held.)
PyArray_Descr* bfloat16() {
    static PyArray_Descr* found = nullptr;
    if (!found) {
        nb::object dtype = nb::module_::import_("numpy").attr("dtype");
        nb::object descr = dtype(nb::module_::import_("ml_dtypes").attr("bfloat16"));
        found = reinterpret_cast<PyArray_Descr*>(descr.release().ptr());
    }
    return found;
}

struct Names {
    nb::object exchange, requires_grad, is_grad_enabled, is_neg, dlpack, dlpack_device, max_version;
    nb::object version_keywords;
};
Names* names = nullptr;  // lives as long as the process: destruction after the interpreter's end is unsafe

DLDataType numpy_dtype(PyArray_Descr* descr) {
    if (descr->type_num >= NPY_USERDEF && descr->type_num == bfloat16()->type_num)
        return {kDLBfloat, 16, 1};
    uint8_t bits = uint8_t(PyDataType_ELSIZE(descr) * 8);
    switch (descr->kind) {
        case 'b': return {kDLBool, 8, 1};
        case 'i': return {kDLInt, bits, 1};
        case 'u': return {kDLUInt, bits, 1};
        case 'f': return {kDLFloat, bits, 1};
        case 'c': return {kDLComplex, bits, 1};
        default: return {kDLOpaqueHandle, bits, 1};
    }
}

PyArray_Descr* descr_of(int64_t dtype) {
    int number = -1;
    switch (dtype) {
        case dtype_of(kDLBfloat, 16): Py_INCREF(bfloat16()); return bfloat16();
        case dtype_of(kDLFloat, 16): number = NPY_HALF; break;
        case dtype_of(kDLFloat, 32): number = NPY_FLOAT; break;
        case dtype_of(kDLFloat, 64): number = NPY_DOUBLE; break;
        case dtype_of(kDLInt, 8): number = NPY_INT8; break;
        case dtype_of(kDLInt, 16): number = NPY_INT16; break;
        case dtype_of(kDLInt, 32): number = NPY_INT32; break;
        case dtype_of(kDLInt, 64): number = NPY_INT64; break;
        case dtype_of(kDLUInt, 8): number = NPY_UINT8; break;
        case dtype_of(kDLUInt, 16): number = NPY_UINT16; break;
        case dtype_of(kDLUInt, 32): number = NPY_UINT32; break;
        case dtype_of(kDLUInt, 64): number = NPY_UINT64; break;
        case dtype_of(kDLBool, 8): number = NPY_BOOL; break;
        default:
            PyErr_Format(PyExc_SystemError, "output has an unknown dtype %lld", (long long)dtype);
            throw nb::python_error();
    }
    return PyArray_DescrFromType(number);
}

// The library of a type, found once: the attribute look-up on a type costs as much as the call.
const Library* find_library(PyTypeObject* type) {
    static Library known[16];
    static int count = 0;
    for (int i = 0; i < count; i++)
        if (known[i].type == type) return known[i].api ? &known[i] : nullptr;
    nb::object capsule =
        nb::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), names->exchange.ptr()));
    if (!capsule.is_valid()) {
        PyErr_Clear();
        return nullptr;
    }
    if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
    auto* api = static_cast<const DLPackExchangeAPI*>(
        PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (api->header.version.major != DLPACK_MAJOR_VERSION) return nullptr;
    // Entries never move or go: Borrowed and callers hold pointers to them. Types beyond sixteen
    // (a program making subclasses on the fly) go through plain DLPack.
    if (count == 16) return nullptr;
    Py_INCREF(type);
    bool grad = PyObject_HasAttr(reinterpret_cast<PyObject*>(type), names->requires_grad.ptr());
    known[count] = {type, api, grad};
    return &known[count++];
}

bool is_true_attribute(PyObject* object, const nb::object& name) {
    nb::object value = nb::steal(PyObject_GetAttr(object, name.ptr()));
    if (!value.is_valid()) throw nb::python_error();
    return value.ptr() == Py_True;
}

// torch is never imported here; a tensor with gradients proves that somebody did.
bool grad_is_enabled() {
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* torch = PyDict_GetItemString(modules, "torch");
    if (!torch) return true;
    nb::object value = nb::steal(PyObject_CallMethodNoArgs(torch, names->is_grad_enabled.ptr()));
    if (!value.is_valid()) throw nb::python_error();
    return value.ptr() == Py_True;
}

// Lazy negation (the imaginary part of a conjugate) is invisible in a DLTensor. Such a tensor is a
// view of complex numbers: never compact, unless it has one element.
bool may_be_negated(const DLTensor& t) {
    if (t.dtype.code != kDLFloat) return false;
    for (int32_t i = t.ndim - 1; i >= 0; i--)
        if (t.shape[i] != 1) return t.strides && t.strides[i] != 1;
    return true;
}

// Whether elements lie in row-major order without gaps; strides of extents 1 do not matter.
bool is_compact(const DLTensor& t) {
    int64_t expected = 1;
    for (int32_t i = t.ndim - 1; i >= 0; i--) {
        if (t.shape[i] != 1 && t.strides[i] != expected) return false;
        expected *= t.shape[i];
    }
    return true;
}

template <int64_t item>
void copy_elements(char* to, const char* from, int64_t count, int64_t step) {
    for (int64_t i = 0; i < count; i++) std::memcpy(to + i * item, from + i * step, item);
}

// `count` elements that are `step` bytes apart.
void copy_row(char* to, const char* from, int64_t count, int64_t step, int64_t item) {
    if (step == item) {
        std::memcpy(to, from, size_t(count * item));
        return;
    }
    switch (item) {
        case 1: return copy_elements<1>(to, from, count, step);
        case 2: return copy_elements<2>(to, from, count, step);
        case 4: return copy_elements<4>(to, from, count, step);
        default: return copy_elements<8>(to, from, count, step);
    }
}

int64_t element_count(const DLTensor& t) {
    int64_t count = 1;
    for (int32_t i = 0; i < t.ndim; i++)
        if (__builtin_mul_overflow(count, t.shape[i], &count)) return -1;
    return count;
}

}  // namespace

void init_tensors() {
    if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
    auto intern = [](const char* s) { return nb::steal(PyUnicode_InternFromString(s)); };
    names = new Names{intern("__dlpack_c_exchange_api__"),
                      intern("requires_grad"),
                      intern("is_grad_enabled"),
                      intern("is_neg"),
                      intern("__dlpack__"),
                      intern("__dlpack_device__"),
                      nb::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION),
                      nb::make_tuple("max_version")};
}

Borrowed::~Borrowed() {
    if (managed_ && managed_->deleter) managed_->deleter(managed_);
    if (legacy_ && legacy_->deleter) legacy_->deleter(legacy_);
}

int64_t* Borrowed::room(int32_t count) {
    if (count <= 16) return few_;
    many_.reset(new int64_t[size_t(count)]);
    return many_.get();
}

void Borrowed::bind(PyObject* object, const TensorSpec& spec, bool writable, int64_t limit) {
    if (PyArray_Check(object)) {
        bind_numpy(object, writable);
    } else if ((library = find_library(Py_TYPE(object)))) {
        bind_library(object, spec);
    } else if (!writable && (PyFloat_Check(object) || PyLong_Check(object))) {
        bind_scalar(object, spec);
    } else if (!writable && PyArray_CheckScalar(object)) {
        nb::object array = nb::steal(PyArray_FromScalar(object, nullptr));
        if (!array.is_valid()) throw nb::python_error();
        bind_numpy(array.ptr(), false);
        keep_ = std::move(array);
    } else {
        bind_dlpack(object, writable);
    }
    finish(spec, writable, limit);
}

void Borrowed::bind_library(PyObject* object, const TensorSpec& spec) {
    if (library->has_grad && is_true_attribute(object, names->requires_grad) && grad_is_enabled())
        throw ArgumentError{Fault::grad};
    const DLPackExchangeAPI* api = library->api;
    if (api->dltensor_from_py_object_no_sync) {
        if (api->dltensor_from_py_object_no_sync(object, &tensor)) throw nb::python_error();
    } else {
        if (api->managed_tensor_from_py_object_no_sync(object, &managed_)) throw nb::python_error();
        tensor = managed_->dl_tensor;
    }
    if (!library->has_grad || !may_be_negated(tensor) || tensor.device.device_type != kDLCPU) return;
    if (dtype_of(tensor) != spec.dtype) return;  // about to be refused anyway
    nb::object negated = nb::steal(PyObject_CallMethodNoArgs(object, names->is_neg.ptr()));
    if (!negated.is_valid()) throw nb::python_error();
    if (negated.ptr() == Py_True) throw ArgumentError{Fault::layout};
}

void Borrowed::bind_numpy(PyObject* object, bool writable) {
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    if (writable && !PyArray_ISWRITEABLE(array)) throw ArgumentError{Fault::read_only};
    if (!PyArray_ISNOTSWAPPED(array)) throw ArgumentError{Fault::order};
    tensor.dtype = numpy_dtype(PyArray_DESCR(array));
    tensor.ndim = PyArray_NDIM(array);
    int64_t item = PyArray_ITEMSIZE(array);
    bool regular = PyArray_ISALIGNED(array) && item > 0;
    for (int i = 0; i < tensor.ndim && regular; i++)
        regular = PyArray_STRIDE(array, i) % item == 0;
    if (!regular && !writable && item > 0) {
        keep_ = nb::steal(PyArray_NewCopy(array, NPY_CORDER));
        if (!keep_.is_valid()) throw nb::python_error();
        array = reinterpret_cast<PyArrayObject*>(keep_.ptr());
        copied = true;
    } else if (!regular) {
        throw ArgumentError{Fault::layout};
    }
    int64_t* numbers = room(2 * tensor.ndim);
    for (int i = 0; i < tensor.ndim; i++) {
        numbers[i] = PyArray_DIM(array, i);
        numbers[tensor.ndim + i] = PyArray_STRIDE(array, i) / item;
    }
    tensor.data = PyArray_DATA(array);
    tensor.device = {kDLCPU, 0};
    tensor.shape = numbers;
    tensor.strides = numbers + tensor.ndim;
    tensor.byte_offset = 0;
}

void Borrowed::bind_scalar(PyObject* number, const TensorSpec& spec) {
    uint8_t code = uint8_t(spec.dtype >> 8), bits = uint8_t(spec.dtype & 0xff);
    if (spec.ndim != 0) throw ArgumentError{Fault::kind};
    if (PyFloat_Check(number) && code != kDLFloat && code != kDLBfloat)
        throw ArgumentError{Fault::value};
    if (code == kDLBool && !PyBool_Check(number)) throw ArgumentError{Fault::value};
    tensor.data = &scalar_;
    tensor.device = {kDLCPU, 0};
    tensor.dtype = {code, bits, 1};
    tensor.shape = tensor.strides = few_;
    if (code == kDLBool) {
        scalar_ = number == Py_True;
    } else if (code == kDLInt || code == kDLUInt) {
        // Little-endian: the low bytes of the 64-bit value are the narrower value.
        int overflow = 0;
        int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (code == kDLUInt && bits == 64 && overflow > 0) {
            uint64_t large = PyLong_AsUnsignedLongLong(number);
            if (PyErr_Occurred()) {
                PyErr_Clear();
                throw ArgumentError{Fault::value};
            }
            scalar_ = int64_t(large);
            return;
        }
        int64_t low = code == kDLUInt ? 0 : std::numeric_limits<int64_t>::min() >> (64 - bits);
        int64_t high = std::numeric_limits<int64_t>::max() >> (64 - bits);
        if (code == kDLUInt && bits < 64) high = high * 2 + 1;
        if (overflow || value < low || value > high) throw ArgumentError{Fault::value};
        scalar_ = value;
    } else {
        double value = PyFloat_AsDouble(number);
        if (value == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            throw ArgumentError{Fault::value};
        }
        if (bits == 64) {
            std::memcpy(&scalar_, &value, sizeof value);
        } else if (bits == 32) {
            float narrow = float(value);
            std::memcpy(&scalar_, &narrow, sizeof narrow);
        } else {  // numpy knows how to round to half and bfloat16
            nb::object wide = nb::steal(PyFloat_FromDouble(value));
            nb::object array = nb::steal(PyArray_FromAny(wide.ptr(), descr_of(spec.dtype), 0, 0,
                                                         NPY_ARRAY_CARRAY | NPY_ARRAY_FORCECAST, nullptr));
            if (!array.is_valid()) throw nb::python_error();
            std::memcpy(&scalar_, PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())), 2);
        }
    }
}

void Borrowed::bind_dlpack(PyObject* object, bool writable) {
    if (PyType_Check(object) || !PyObject_HasAttr(object, names->dlpack.ptr()) ||
        !PyObject_HasAttr(object, names->dlpack_device.ptr()))
        throw ArgumentError{Fault::kind};
    nb::object device = nb::steal(PyObject_CallMethodNoArgs(object, names->dlpack_device.ptr()));
    if (!device.is_valid()) throw nb::python_error();
    long long type = -1, number = 0;
    if (!PyTuple_Check(device.ptr()) || !PyArg_ParseTuple(device.ptr(), "LL", &type, &number)) {
        // Enumerations of device types are not always ints; torch's and numpy's are.
        PyErr_Clear();
        throw ArgumentError{Fault::device, -1, 0};
    }
    if (type != kDLCPU) throw ArgumentError{Fault::device, type, number};
    PyObject* call[] = {object, names->max_version.ptr()};
    nb::object capsule = nb::steal(
        PyObject_VectorcallMethod(names->dlpack.ptr(), call, 1, names->version_keywords.ptr()));
    if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();  // older than DLPack 1.0
        capsule = nb::steal(PyObject_CallMethodNoArgs(object, names->dlpack.ptr()));
    }
    if (!capsule.is_valid()) throw nb::python_error();
    PyObject* c = capsule.ptr();
    if (PyCapsule_IsValid(c, "dltensor_versioned")) {
        auto* m = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(c, "dltensor_versioned"));
        PyCapsule_SetName(c, "used_dltensor_versioned");
        managed_ = m;
        if (m->version.major != DLPACK_MAJOR_VERSION) throw ArgumentError{Fault::kind};
        if (writable && (m->flags & (DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED)))
            throw ArgumentError{Fault::read_only};
        tensor = m->dl_tensor;
    } else if (PyCapsule_IsValid(c, "dltensor")) {
        legacy_ = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(c, "dltensor"));
        PyCapsule_SetName(c, "used_dltensor");
        tensor = legacy_->dl_tensor;
    } else {
        throw ArgumentError{Fault::kind};
    }
}

void Borrowed::finish(const TensorSpec& spec, bool writable, int64_t limit) {
    DLTensor& t = tensor;
    if (t.device.device_type != kDLCPU)
        throw ArgumentError{Fault::device, t.device.device_type, t.device.device_id};
    if (dtype_of(t) != spec.dtype || t.dtype.lanes != 1)
        throw ArgumentError{Fault::dtype, spec.dtype, dtype_of(t)};
    if (t.ndim != spec.ndim) throw ArgumentError{Fault::rank, spec.ndim, t.ndim};
    for (int32_t i = 0; i < t.ndim; i++)
        if (t.shape[i] < 0) throw ArgumentError{Fault::layout};
    int64_t count = element_count(t);
    if (!t.shape) t.shape = few_;  // rank 0
    if (!t.strides) {
        int64_t* strides = room(t.ndim);
        int64_t stride = 1;
        for (int32_t i = t.ndim - 1; i >= 0; i--) {
            strides[i] = stride;
            stride = int64_t(uint64_t(stride) * uint64_t(t.shape[i]));
        }
        t.strides = strides;
    }
    if (count == 0) return;
    t.data = static_cast<char*>(t.data) + t.byte_offset;
    t.byte_offset = 0;
    if (!t.data) throw ArgumentError{Fault::layout};
    uintptr_t item = t.dtype.bits > 8 ? t.dtype.bits / 8 : 1;
    bool aligned = reinterpret_cast<uintptr_t>(t.data) % item == 0;
    if (aligned && !(spec.compact && !is_compact(t))) return;
    if (writable) throw ArgumentError{Fault::layout};
    copy_compact(limit);
}

// A compact copy, a row at a time. Elements may be at odd addresses.
void Borrowed::copy_compact(int64_t limit) {
    int64_t count = element_count(tensor), bytes;
    int64_t item = tensor.dtype.bits > 8 ? tensor.dtype.bits / 8 : 1;
    if (limit <= 0) limit = pl_default_memory_limit();
    if (count < 0 || __builtin_mul_overflow(count, item, &bytes))
        bytes = std::numeric_limits<int64_t>::max();
    if (bytes <= limit) copy_.reset(new (std::nothrow) char[size_t(bytes)]);
    if (!copy_) throw ArgumentError{Fault::memory, bytes, limit};
    auto numbers = std::make_unique<int64_t[]>(size_t(tensor.ndim) * 2 + 1);
    std::memcpy(numbers.get(), tensor.shape, size_t(tensor.ndim) * sizeof(int64_t));
    std::vector<int64_t> at(size_t(tensor.ndim), 0);
    int32_t last = tensor.ndim - 1;
    int64_t row = last < 0 ? 1 : tensor.shape[last], step = last < 0 ? 1 : tensor.strides[last];
    const char* from = static_cast<const char*>(tensor.data);
    for (int64_t done = 0; done < count; done += row) {
        copy_row(copy_.get() + done * item, from, row, step * item, item);
        for (int32_t d = last - 1; d >= 0; d--) {
            from += tensor.strides[d] * item;
            if (++at[size_t(d)] < tensor.shape[d]) break;
            from -= tensor.strides[d] * item * tensor.shape[d];
            at[size_t(d)] = 0;
        }
    }
    int64_t stride = 1;
    for (int32_t d = tensor.ndim - 1; d >= 0; d--) {
        numbers[tensor.ndim + d] = stride;
        stride *= tensor.shape[d];
    }
    many_ = std::move(numbers);
    tensor.shape = many_.get();
    tensor.strides = many_.get() + tensor.ndim;
    tensor.data = copy_.get();
    copied = true;
}

// ---- results -------------------------------------------------------------------------------------

namespace {

struct BufferOwner {
    pl_buffer* buffer;
    ~BufferOwner() { pl_buffer_release(buffer); }
    pl_buffer* give() { return std::exchange(buffer, nullptr); }
};

void release_capsule(PyObject* capsule) {
    pl_buffer_release(static_cast<pl_buffer*>(PyCapsule_GetPointer(capsule, "pliant.buffer")));
}

struct Exported {
    DLManagedTensorVersioned managed;
    int64_t numbers[1];  // shape, then strides
};

void release_exported(DLManagedTensorVersioned* managed) {
    pl_buffer_release(static_cast<pl_buffer*>(managed->manager_ctx));
    std::free(managed);
}

}  // namespace

nb::object to_numpy(const pl_result& result) {
    BufferOwner owner{result.buffer};
    void* data = pl_buffer_data(result.buffer);
    PyArray_Descr* descr = descr_of(result.dtype);  // stolen below
    npy_intp shape[PL_MAX_NDIM];
    for (int64_t i = 0; i < result.ndim; i++) shape[i] = npy_intp(result.shape[i]);
    nb::object array = nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, int(result.ndim), shape,
                                                      nullptr, data, NPY_ARRAY_CARRAY, nullptr));
    if (!array.is_valid()) throw nb::python_error();
    PyObject* capsule = PyCapsule_New(result.buffer, "pliant.buffer", release_capsule);
    if (!capsule) throw nb::python_error();
    owner.give();
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), capsule) < 0)
        throw nb::python_error();
    return array;
}

nb::object to_library(const Library& library, const pl_result& result) {
    BufferOwner owner{result.buffer};
    size_t ndim = size_t(result.ndim);
    auto* e = static_cast<Exported*>(std::malloc(sizeof(Exported) + 2 * ndim * sizeof(int64_t)));
    if (!e) throw std::bad_alloc();
    int64_t stride = 1;
    for (size_t i = ndim; i-- > 0;) {
        e->numbers[i] = result.shape[i];
        e->numbers[ndim + i] = stride;
        stride *= result.shape[i] > 1 ? result.shape[i] : 1;
    }
    e->managed.version = {DLPACK_MAJOR_VERSION, 0};
    e->managed.manager_ctx = result.buffer;
    e->managed.deleter = release_exported;
    e->managed.flags = 0;
    e->managed.dl_tensor = {pl_buffer_data(result.buffer),
                            {kDLCPU, 0},
                            int32_t(ndim),
                            {uint8_t(result.dtype >> 8), uint8_t(result.dtype & 0xff), 1},
                            e->numbers,
                            e->numbers + ndim,
                            0};
    owner.give();
    void* object = nullptr;
    if (library.api->managed_tensor_to_py_object_no_sync(&e->managed, &object))
        throw nb::python_error();
    return nb::steal(static_cast<PyObject*>(object));
}
