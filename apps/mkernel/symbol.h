// Functions of libraries that are opened at run time.
#pragma once
#include <dlfcn.h>

namespace mkernel::app {

/// Whether an open library has the function; its type is the caller's word.
template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace mkernel::app
