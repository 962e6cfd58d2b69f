// Device work without times among a capture's last records: what had not ended when the window closed lies
// outside of it and is no loss; what has none although later work of its stream has some was spoiled, and is
// one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/recorder.h"

namespace ai_prof::cupti {

class Unfinished {
 public:
  // Work of a KernelRecord or MemoryRecord with its times.
  template <class Record>
  void timed(const Record& record) {
    Stream& stream = streams_[key(record)];
    if (record.correlation > stream.latest) stream.latest = record.correlation;
  }
  // Work that has no end.
  template <class Record>
  void untimed(format::BlockType type, const Record& record) {
    streams_[key(record)].untimed.push_back({type, record.correlation});
  }

  // Once all has come.
  void count(Recorder& recorder) const;

 private:
  struct Work {
    format::BlockType type;
    std::uint32_t correlation;
  };
  struct Stream {
    std::uint32_t latest = 0;  // launched of what has times; a stream ends its work in the order of launches
    std::vector<Work> untimed;
  };
  using Key = std::array<std::uint32_t, 3>;

  template <class Record>
  static Key key(const Record& record) {
    return {record.device, record.context, record.stream};
  }

  std::map<Key, Stream> streams_;
};

}  // namespace ai_prof::cupti
