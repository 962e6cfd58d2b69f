// The driver's way in: it loads the library that CUDA_INJECTION64_PATH names and calls this during cuInit.
#include <exception>

#include "agent/standby.h"
#include "core/config.h"
#include "core/explain.h"
#include "core/say.h"
#include "cupti/cuda_source.h"

extern "C" __attribute__((visibility("default"))) int InitializeInjection() noexcept {
  using namespace ai_prof;
  // The program goes on whatever happens here; 1 tells the driver so.
  static const int done = [] {
    try {
      if (config().mode == Mode::kOn) cupti::CudaSource::start(config());
      if (config().mode == Mode::kStandby) agent::stand_by();
    } catch (const std::exception& error) {
      say("CUDA is not captured: " + explain(error));
    } catch (...) {
      say("CUDA is not captured: unknown error");
    }
    return 1;
  }();
  return done;
}
