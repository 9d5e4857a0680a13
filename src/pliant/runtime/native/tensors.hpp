// Tensors across the border: Python objects seen as DLTensors, and results turned into Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pliant.h"

namespace nb = nanobind;

// What is wrong with an argument. `messages.py` has the words; values are mirrored in abi.py.
enum class Fault : int32_t {
    count = -1,   // expected, got
    kind = -2,    // not a tensor at all
    dtype = -3,   // expected, got (DLPack code << 8 | bits)
    rank = -4,    // expected, got
    device = -5,  // DLPack device type and number
    grad = -6,    // requires a gradient that nobody would compute
    value = -7,   // a Python number that the dtype does not hold
    layout = -8,  // impossible extents, unaligned `out`
    order = -9,   // bytes swapped
    read_only = -10,
    memory = -11,  // of a copy: bytes wanted, the limit
};

struct ArgumentError {
    Fault fault;
    int64_t a = 0;
    int64_t b = 0;
};

struct TensorSpec {
    std::string name;
    int64_t dtype;
    int32_t ndim;
    bool compact;  // other strides are copied before the call
};

// A library whose tensor type carries DLPack's C functions (torch).
struct Library {
    PyTypeObject* type = nullptr;
    const DLPackExchangeAPI* api = nullptr;
    bool has_grad = false;
};

// One argument for the time of a call. Not movable once bound: the tensor may point into it.
class Borrowed {
  public:
    Borrowed() = default;
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed();

    // Sees `object` as a tensor that satisfies `spec` and what pliant.h promises to entries.
    // A copy, where one is needed, takes at most `limit` bytes (0: what a call may use by itself).
    // Throws ArgumentError, or nb::python_error with what the object's library said.
    void bind(PyObject* object, const TensorSpec& spec, bool writable, int64_t limit);

    DLTensor tensor{};
    const Library* library = nullptr;
    bool copied = false;

  private:
    void bind_library(PyObject* object, const TensorSpec& spec);
    void bind_numpy(PyObject* array, bool writable);
    void bind_scalar(PyObject* number, const TensorSpec& spec);
    void bind_dlpack(PyObject* object, bool writable);
    void finish(const TensorSpec& spec, bool writable, int64_t limit);
    void copy_compact(int64_t limit);
    int64_t* room(int32_t count);

    nb::object keep_;
    DLManagedTensorVersioned* managed_ = nullptr;
    DLManagedTensor* legacy_ = nullptr;
    int64_t scalar_ = 0;
    int64_t few_[16];
    std::unique_ptr<int64_t[]> many_;
    std::unique_ptr<char[]> copy_;
};

// Called once, at import. Throws nb::python_error.
void init_tensors();

// Python objects over a result's buffer, which they take over (also when they throw).
nb::object to_numpy(const pl_result& result);
nb::object to_library(const Library& library, const pl_result& result);
