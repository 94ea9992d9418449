/* The functions of cuDNN that this backend uses. */
#include <cudnn.h>

#include "backend/cuda/library.h"

#define SONAME "libcudnn.so." OPENED_TEXT(CUDNN_MAJOR)

static struct opened_library library = OPENED_LIBRARY(SONAME, CUDNN_FOLDER);

#define FORWARD(type, name, parameters, arguments, otherwise)                                                          \
    OPENED_FUNCTION(&library, type, name, parameters, arguments, otherwise)
#define FORWARD_CALL(name, parameters, arguments)                                                                      \
    FORWARD(cudnnStatus_t, name, parameters, arguments, CUDNN_STATUS_NOT_INITIALIZED)

FORWARD(size_t, cudnnGetVersion, (void), (), 0)
FORWARD(const char *, cudnnGetErrorString, (cudnnStatus_t status), (status), SONAME " cannot be opened")
FORWARD_CALL(cudnnCreate, (cudnnHandle_t * handle), (handle))
FORWARD_CALL(cudnnDestroy, (cudnnHandle_t handle), (handle))
FORWARD_CALL(cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
FORWARD_CALL(cudnnBackendCreateDescriptor, (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor),
             (type, descriptor))
FORWARD_CALL(cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD_CALL(cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD_CALL(cudnnBackendSetAttribute,
             (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t count, const void *values),
             (descriptor, name, type, count, values))
FORWARD_CALL(cudnnBackendGetAttribute,
             (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values),
             (descriptor, name, type, wanted, count, values))
FORWARD_CALL(cudnnBackendExecute,
             (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t addresses),
             (handle, plan, addresses))

void cudnnGetLastErrorString(char *message, size_t bytes) {
    void (*function)(char *, size_t);
    *(void **)&function = opened_library_find(&library, "cudnnGetLastErrorString");
    if (function)
        function(message, bytes);
    else if (bytes > 0)
        message[0] = '\0';
}
