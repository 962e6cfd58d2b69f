// Which libcupti to load: the one that belongs to the CUDA that the process uses.
#pragma once

#include <string>
#include <vector>

namespace ai_prof::cupti {

// The libraries of this process, each once, as its loader names them: opening one by that name gives the copy
// that is there, also where its file has been replaced or removed since.
std::vector<std::string> loaded_libraries();

// Paths and sonames to try, best first: the one asked for alone if it is set; else a libcupti already loaded,
// the ones beside loaded files of a Python environment, the toolkit's.
// `driver_version` is cuDriverGetVersion's, 0 when unknown: a libcupti newer than the driver cannot work.
std::vector<std::string> cupti_candidates(const std::string& asked, const std::vector<std::string>& loaded,
                                          int driver_version);

}  // namespace ai_prof::cupti
