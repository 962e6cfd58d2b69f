#include "cupti/unfinished.h"

namespace ai_prof::cupti {

void Unfinished::count(Recorder& recorder) const {
  for (const auto& [key, stream] : streams_) {
    for (const Work& work : stream.untimed) {
      // Kernels of one graph launch share its number.
      if (work.correlation >= stream.latest) {
        recorder.unfinished(work.type);
      } else {
        recorder.invalid_time(work.type);
      }
    }
  }
}

}  // namespace ai_prof::cupti
