// From a name that CUPTI points to, to its id in the file.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/recorder.h"

namespace ai_prof::cupti {

// The name as a person writes it: C++ symbols demangled, anything else as it is.
std::string demangle(const char* symbol);

// Remembers names by their address, and checks the text each time: after a module is unloaded, CUPTI may put
// another kernel's name at the same place.
class Names {
 public:
  std::uint32_t id(const char* name, Recorder& recorder);

 private:
  struct Entry {
    std::string text;
    std::uint32_t id = 0;
  };
  std::unordered_map<const char*, Entry> known_;
};

}  // namespace ai_prof::cupti
