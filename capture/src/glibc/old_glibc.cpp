// Keeps the library loadable where glibc is as old as 2.28, whatever glibc it is built on.
//
// Linked against a newer glibc, functions that have been there for ever are bound to versions that older ones
// lack, and those in the static libstdc++ and libgcc as well. What is defined here, hidden, comes before the
// C library in the link and reaches it by the old version. A test reads the built library's symbols.
#include <features.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <span>

// A jump, not a call: dlopen looks at who called it. On aarch64 everything old is of 2.17.
// NOLINTBEGIN(bugprone-macro-parentheses): they paste names
#ifdef __x86_64__
#define AI_PROF_JUMP "jmp ai_prof_old_"
#define AI_PROF_PLT "@PLT"
#define AI_PROF_VERSION_OF(on_x86) "GLIBC_" on_x86
#else
#define AI_PROF_JUMP "b ai_prof_old_"
#define AI_PROF_PLT ""
#define AI_PROF_VERSION_OF(on_x86) "GLIBC_2.17"
#endif
#define AI_PROF_BIND(name, on_x86)                                                             \
  __asm__(".symver ai_prof_old_" #name "," #name "@" AI_PROF_VERSION_OF(                       \
      on_x86) "\n"                                                                             \
              ".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name \
              ":\n" AI_PROF_JUMP #name AI_PROF_PLT                                             \
              "\n"                                                                             \
              ".size " #name ", .-" #name "\n")
// NOLINTEND(bugprone-macro-parentheses)

// Moved from libpthread and libdl into libc in 2.32 and 2.34.
AI_PROF_BIND(dladdr, "2.2.5");
AI_PROF_BIND(dlclose, "2.2.5");
AI_PROF_BIND(dlerror, "2.2.5");
AI_PROF_BIND(dlopen, "2.2.5");
AI_PROF_BIND(dlsym, "2.2.5");
AI_PROF_BIND(pthread_condattr_setclock, "2.3.3");
AI_PROF_BIND(pthread_create, "2.2.5");
AI_PROF_BIND(pthread_detach, "2.2.5");
AI_PROF_BIND(pthread_getspecific, "2.2.5");
AI_PROF_BIND(pthread_join, "2.2.5");
AI_PROF_BIND(pthread_key_create, "2.2.5");
AI_PROF_BIND(__pthread_key_create, "2.2.5");
AI_PROF_BIND(pthread_key_delete, "2.2.5");
AI_PROF_BIND(pthread_once, "2.2.5");
AI_PROF_BIND(pthread_rwlock_rdlock, "2.2.5");
AI_PROF_BIND(pthread_rwlock_unlock, "2.2.5");
AI_PROF_BIND(pthread_rwlock_wrlock, "2.2.5");
AI_PROF_BIND(pthread_setname_np, "2.12");
AI_PROF_BIND(pthread_setspecific, "2.2.5");
AI_PROF_BIND(pthread_sigmask, "2.2.5");

extern "C" {

#pragma GCC visibility push(hidden)

// libstdc++ reads it to spare atomics: there is always a second thread, ours.
char __libc_single_threaded = 0;

#if __GLIBC_PREREQ(2, 33)
// Were inline wrappers of versioned functions before 2.33. The kernel's structure is the C library's.
int stat(const char* __restrict path, struct stat* __restrict found) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, found, 0));
}
int fstat(int descriptor, struct stat* found) noexcept {
  return static_cast<int>(syscall(SYS_fstat, descriptor, found));
}
int fstat64(int descriptor, struct stat64* found) noexcept {
  return static_cast<int>(syscall(SYS_fstat, descriptor, found));
}
#endif

// Of 2.36, for std::random_device.
std::uint32_t arc4random() noexcept {
  std::uint32_t word = 0;
  while (getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
  }
  return word;
}

// Of 2.35, by which libgcc's unwinder finds the object that an address belongs to.
#ifdef DLFO_EH_SEGMENT_TYPE
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  struct Search {
    std::uintptr_t address;
    dl_find_object* result;
  } search{reinterpret_cast<std::uintptr_t>(address), result};
  // NOLINTBEGIN(performance-no-int-to-ptr): the loader tells addresses as numbers
  const auto visit = [](dl_phdr_info* object, std::size_t, void* word) -> int {
    const Search& wanted = *static_cast<const Search*>(word);
    bool inside = false;
    void* frames = nullptr;
    for (const auto& part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
      const std::uintptr_t start = object->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(start);
      if (part.p_type != PT_LOAD || wanted.address < start || wanted.address >= start + part.p_memsz)
        continue;
      inside = true;
      wanted.result->dlfo_map_start = reinterpret_cast<void*>(start);
      wanted.result->dlfo_map_end = reinterpret_cast<void*>(start + part.p_memsz);
    }
    if (!inside || frames == nullptr) return 0;
    wanted.result->dlfo_eh_frame = frames;
    return 1;
  };
  // NOLINTEND(performance-no-int-to-ptr)
  return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}
#endif

#pragma GCC visibility pop

}  // extern "C"

#endif
