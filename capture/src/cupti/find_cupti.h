// Which libcupti to load: the one that belongs to the CUDA that the process uses.
#pragma once

#include <string>
#include <vector>

namespace ai_prof::cupti {

// The files mapped into this process, each once, in the order of their addresses.
std::vector<std::string> mapped_files();

// Paths and sonames to try, best first: the one asked for alone if it is set; else a libcupti already mapped,
// the ones beside mapped files of a Python environment, the toolkit's.
// `driver_version` is cuDriverGetVersion's, 0 when unknown: a libcupti newer than the driver cannot work.
std::vector<std::string> cupti_candidates(const std::string& asked, const std::vector<std::string>& mapped,
                                          int driver_version);

}  // namespace ai_prof::cupti
