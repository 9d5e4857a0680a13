/* The binary interface of DLPack 1.x, declared from its specification: only what the call path uses.
 * Tensors of other libraries cross through these structures without a copy. */
#ifndef PLIANT_DLPACK_ABI_H
#define PLIANT_DLPACK_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

/* Flags of a versioned tensor. */
#define DLPACK_FLAG_BITMASK_READ_ONLY ((uint64_t)1)
#define DLPACK_FLAG_BITMASK_IS_COPIED ((uint64_t)2)

typedef enum { kDLCPU = 1 } DLDeviceType; /* the only device that Pliant reads today */

enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLOpaqueHandle = 3,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6
};

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

/* Extents and strides count elements; strides may be NULL for compact row-major. */
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* The table of functions behind a type's `__dlpack_c_exchange_api__` capsule. */
typedef struct DLPackExchangeAPI {
    struct {
        DLPackVersion version;
        void *prev_api;
    } header;
    int (*managed_tensor_allocator)(DLTensor *like, DLManagedTensorVersioned **out, void *error,
                                    void (*set_error)(void *error, const char *kind,
                                                      const char *message));
    int (*managed_tensor_from_py_object_no_sync)(void *object, DLManagedTensorVersioned **out);
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor, void **object);
    int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out);
    int (*current_work_stream)(DLDeviceType device, int32_t id, void **stream);
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif

#endif
