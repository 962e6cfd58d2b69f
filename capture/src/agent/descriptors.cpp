#include "agent/descriptors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "core/standard_streams.h"

namespace ai_prof::agent {

Passed receive(int socket) noexcept {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const bool came = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1;
  close(socket);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!came || header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int found[2] = {-1, -1};
  const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
  std::memcpy(found, CMSG_DATA(header), bytes < sizeof found ? bytes : sizeof found);
  return {OwnDescriptor(off_standard_streams(found[0])), OwnDescriptor(off_standard_streams(found[1]))};
}

}  // namespace ai_prof::agent
