// Which options create which step: a factory returns null if the options leave its step without effect.
#include "sampling/steps/factories.h"

#include <gtest/gtest.h>

#include <functional>

namespace millrace {
namespace {

// Every step off; temperature 1 draws from the model's own distribution.
SamplerSetup neutral_setup() {
  SamplerSetup setup;
  setup.vocab_size = 10;
  setup.options.top_k = 0;
  setup.options.top_p = 1;
  setup.options.min_p = 0;
  setup.options.temperature = 1;
  return setup;
}

using S = SamplerSetup;
using O = SamplingOptions;

struct Case {
  const char* about;
  SamplerFactory make;
  bool made;
  std::function<void(SamplerSetup&)> change;
};

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SamplerSetup setup = neutral_setup();
    one.change(setup);
    EXPECT_EQ(one.make(setup) != nullptr, one.made) << one.about;
  }
}

TEST(Factories, NeutralOptionsMakeNoStep) {
  for (const auto& entry : samplers().entries()) EXPECT_EQ(entry.member(neutral_setup()), nullptr) << entry.info.name;
}

TEST(Factories, Penalties) {
  check({
      {"repetition alone", make_penalties, true, [](S& s) { s.options.repetition_penalty = 1.5; }},
      {"frequency alone", make_penalties, true, [](S& s) { s.options.frequency_penalty = 1; }},
      {"presence alone", make_penalties, true, [](S& s) { s.options.presence_penalty = 1; }},
      {"a window of one", make_penalties, true,
       [](S& s) { s.options.presence_penalty = 1, s.options.penalty_window = 1; }},
      {"no window", make_penalties, false, [](S& s) { s.options.presence_penalty = 1, s.options.penalty_window = 0; }},
      {"no penalty", make_penalties, false, [](S& s) { s.options.penalty_window = -1; }},
  });
}

TEST(Factories, Dry) {
  check({
      {"on", make_dry, true, [](S& s) { s.options.dry_multiplier = 0.1; }},
      {"a window of one", make_dry, true, [](S& s) { s.options.dry_multiplier = 1, s.options.dry_window = 1; }},
      {"no window", make_dry, false, [](S& s) { s.options.dry_multiplier = 1, s.options.dry_window = 0; }},
      {"a window, no strength", make_dry, false, [](S& s) { s.options.dry_window = 5; }},
  });
}

TEST(Factories, Lists) {
  check({
      {"a bias", make_logit_bias, true,
       [](S& s) {
         s.options.logit_bias = {{0, 0.5}};
       }},
      {"a ban", make_banned_tokens, true, [](S& s) { s.options.banned_tokens = {0}; }},
      {"one allowed", make_allowed_tokens, true, [](S& s) { s.options.allowed_tokens = {0}; }},
      {"a bad word", make_bad_words, true,
       [](S& s) {
         s.bad_words = {{}, {0}};
       }},
      {"empty words", make_bad_words, false,
       [](S& s) {
         s.bad_words = {{}, {}};
       }},
  });
}

TEST(Factories, EndOfGeneration) {
  check({
      {"one token at least", make_end_of_generation, true, [](S& s) { s.end_of_generation = {1}, s.min_tokens = 1; }},
      {"always", make_end_of_generation, true, [](S& s) { s.end_of_generation = {1}, s.ignore_eos = true; }},
      {"no options", make_end_of_generation, false, [](S& s) { s.end_of_generation = {1}; }},
      {"nothing ends", make_end_of_generation, false, [](S& s) { s.ignore_eos = true, s.min_tokens = 4; }},
  });
}

using Change = std::function<void(SamplingOptions&)>;

// Created with `on`, not with `off`; never for greedy decoding, and not with mirostat if that replaces the step.
void check_step(const char* about, SamplerFactory make, const Change& on, const Change& off, bool beside_mirostat) {
  const auto made = [&](const Change& change, double temperature, int64_t mirostat) {
    SamplerSetup setup = neutral_setup();
    setup.options.temperature = temperature;
    setup.options.mirostat = mirostat;
    change(setup.options);
    return make(setup) != nullptr;
  };
  EXPECT_TRUE(made(on, 0.7, 0)) << about;
  EXPECT_FALSE(made(off, 0.7, 0)) << about;
  EXPECT_FALSE(made(on, 0, 0)) << about << ", greedy";
  EXPECT_EQ(made(on, 0.7, 2), beside_mirostat) << about << ", mirostat";
}

TEST(Factories, TruncationIsSkippedForGreedyAndMirostat) {
  check_step(
      "top_n_sigma", make_top_n_sigma, [](O& o) { o.top_n_sigma = 0.5; }, [](O& o) { o.top_n_sigma = 0; }, false);
  check_step(
      "top_k", make_top_k, [](O& o) { o.top_k = 1; }, [](O& o) { o.top_k = 0; }, false);
  check_step(
      "typical_p", make_typical_p, [](O& o) { o.typical_p = 0.99; }, [](O& o) { o.typical_p = 1; }, false);
  check_step(
      "top_p", make_top_p, [](O& o) { o.top_p = 0.99; }, [](O& o) { o.top_p = 1; }, false);
  check_step(
      "min_p", make_min_p, [](O& o) { o.min_p = 0.01; }, [](O& o) { o.min_p = 0; }, false);
  check_step(
      "xtc", make_xtc, [](O& o) { o.xtc_probability = 0.1, o.xtc_threshold = 0.5; },
      [](O& o) { o.xtc_probability = 0, o.xtc_threshold = 0.5; }, false);
  check_step(
      "xtc above a half", make_xtc, [](O& o) { o.xtc_probability = 1, o.xtc_threshold = 0.1; },
      [](O& o) { o.xtc_probability = 1, o.xtc_threshold = 0.51; }, false);
  check_step(
      "dynamic_temperature", make_dynamic_temperature, [](O& o) { o.dynamic_temperature_range = 0.5; },
      [](O& o) { o.dynamic_temperature_range = 0; }, true);
}

TEST(Factories, TemperatureAndItsSubstitutes) {
  check({
      {"a whole temperature", make_temperature, true, [](S& s) { s.options.temperature = 2; }},
      {"a low one", make_temperature, true, [](S& s) { s.options.temperature = 0.5; }},
      {"greedy", make_temperature, false, [](S& s) { s.options.temperature = 0; }},
      {"dynamic instead", make_temperature, false,
       [](S& s) { s.options.temperature = 2, s.options.dynamic_temperature_range = 0.5; }},
      {"dynamic instead, about 1", make_temperature, false, [](S& s) { s.options.dynamic_temperature_range = 0.5; }},
      {"greedy in place of a draw", make_greedy, true, [](S& s) { s.options.temperature = 0; }},
      {"mirostat", make_mirostat, true, [](S& s) { s.options.mirostat = 2; }},
      {"mirostat, greedy", make_mirostat, false, [](S& s) { s.options.mirostat = 2, s.options.temperature = 0; }},
  });
}

}  // namespace
}  // namespace millrace
