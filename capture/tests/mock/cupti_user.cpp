// What matters of this library is what it is linked against.
extern "C" int cupti_user() {
  return 1;
}
