#include "agent/descriptors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "core/standard_streams.h"

namespace ai_prof::agent {

Passed receive(int socket) noexcept {
  Passed passed;
  passed.line = off_standard_streams(socket);
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  if (recvmsg(passed.line, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) return passed;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return passed;
  int found[2] = {-1, -1};
  const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
  std::memcpy(found, CMSG_DATA(header), bytes < sizeof found ? bytes : sizeof found);
  passed.output = off_standard_streams(found[0]);
  passed.cupti = off_standard_streams(found[1]);
  return passed;
}

void close_all(const Passed& passed) noexcept {
  for (const int descriptor : {passed.output, passed.cupti, passed.line}) {
    if (descriptor >= 0) close(descriptor);
  }
}

bool is_cut(int line) noexcept {
  char byte = 0;
  return line >= 0 && recv(line, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace ai_prof::agent
