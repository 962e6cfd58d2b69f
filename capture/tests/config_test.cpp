#include "core/config.h"

#include <initializer_list>

#include "check.h"

namespace {

using namespace ai_prof;

std::string g_problem;

std::optional<Config> parse(std::initializer_list<const char*> variables) {
  std::vector<const char*> environment(variables);
  environment.push_back(nullptr);
  g_problem.clear();
  return parse_config(environment.data(), g_problem);
}

bool refused(const char* variable) {
  return !parse({"AI_PROF_ENABLE=1", variable}) && g_problem.find("AI_PROF_") == 0;
}

void off_looks_at_nothing() {
  CHECK(parse({})->mode == Mode::kOff);
  CHECK(parse({"AI_PROF_ENABLE=", "AI_PROF_LEVEL=nonsense"})->mode == Mode::kOff);
  CHECK(parse({"AI_PROF_ENABLE=0", "AI_PROF_WHAT=1"})->mode == Mode::kOff);
}

void defaults() {
  const auto config = parse({"AI_PROF_ENABLE=1", "AI_PROF_LEVEL=", "OTHER=1", "AI_PROFX=1"});
  CHECK(config.has_value());
  CHECK(config->mode == Mode::kOn);
  CHECK(config->level == Level::kKernel);
  CHECK(config->graphs == Graphs::kNode);
  CHECK(config->buffer_bytes == 256ull << 20);
  CHECK(config->max_file_bytes == 0);
  CHECK(config->note.empty());
}

void values() {
  const auto config =
      parse({"AI_PROF_LEVEL=api", "AI_PROF_BUFFER_MB=512", "AI_PROF_GRAPHS=graph", "AI_PROF_MAX_FILE_MB=3",
             "AI_PROF_DELAY=1.5", "AI_PROF_DURATION=20", "AI_PROF_ITERATIONS=7", "AI_PROF_STEADY=1",
             "AI_PROF_NOTE=batch=8,text=a=b", "AI_PROF_CUPTI=/x/libcupti.so", "AI_PROF_OUTPUT=out",
             "AI_PROF_CAPTURE_ID=a-1_b.C", "AI_PROF_ENABLE=standby"});
  CHECK(config.has_value());
  CHECK(config->mode == Mode::kStandby);
  CHECK(config->level == Level::kApi);
  CHECK(config->buffer_bytes == 512ull << 20);
  CHECK(config->graphs == Graphs::kGraph);
  CHECK(config->max_file_bytes == 3ull << 20);
  CHECK(config->delay_s == 1.5);
  CHECK(config->duration_s == 20);
  CHECK(config->iterations == 7);
  CHECK(config->steady);
  CHECK(config->cupti == "/x/libcupti.so");
  CHECK(config->output == "out");
  CHECK(config->capture_id == "a-1_b.C");
  CHECK(config->note.size() == 2);
  CHECK(config->note[1].first == "text" && config->note[1].second == "a=b");
}

void bad_values() {
  for (const char* variable :
       {"AI_PROF_LEVEL=all", "AI_PROF_BUFFER_MB=0", "AI_PROF_BUFFER_MB=-1", "AI_PROF_BUFFER_MB=1.5",
        "AI_PROF_BUFFER_MB=99999999999999999999", "AI_PROF_DELAY=-1", "AI_PROF_DELAY=nan",
        "AI_PROF_DURATION=1s", "AI_PROF_STEADY=yes", "AI_PROF_NOTE=batch", "AI_PROF_NOTE==8",
        "AI_PROF_CAPTURE_ID=a/b", "AI_PROF_GRAPHS=both", "AI_PROF_LEVL=api", "AI_PROF_=1"}) {
    CHECK(refused(variable));
  }
  CHECK(!parse({"AI_PROF_ENABLE=yes"}));
}

}  // namespace

int main() {
  off_looks_at_nothing();
  defaults();
  values();
  bad_values();
  return ai_prof::test::verdict();
}
