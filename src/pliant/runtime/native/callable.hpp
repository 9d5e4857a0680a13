// A host entry as a Python object.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <vector>

#include "tensors.hpp"

class Callable {
  public:
    // `fail(code, payload, detail)` makes the exception to raise; `keepalive` owns the code and the
    // weights. One output is returned bare when `single`, otherwise outputs come as a tuple.
    Callable(uintptr_t entry, nb::handle inputs, nb::handle outputs, nb::handle weights,
             nb::object fail, nb::object keepalive, int64_t threads, int64_t memory_limit, bool single);
    ~Callable();
    Callable(const Callable&) = delete;
    Callable& operator=(const Callable&) = delete;

    nb::object call(nb::handle inputs, nb::handle out);

    nb::object fail;
    nb::object keepalive;
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> copies{0};
    std::atomic<int64_t> peak_bytes{0};

  private:
    [[noreturn]] void raise(int32_t code, const std::vector<int64_t>& payload, const char* detail);
    void bind(Borrowed& slot, PyObject* object, const TensorSpec& spec, bool is_output, size_t index);
    nb::object collect(pl_ctx* ctx, const Library* library, PyObject* const* given);

    pl_entry entry_;
    std::vector<TensorSpec> inputs_;
    std::vector<TensorSpec> outputs_;
    std::vector<void*> weights_;
    std::vector<Py_buffer> views_;
    int64_t threads_;
    int64_t memory_limit_;
    bool single_;
};
