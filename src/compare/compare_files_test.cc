// Readers of published benchmark files, what counts as the right answer, and what other engines print.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "compare/choice_file.h"
#include "compare/engines/llama_cpp.h"
#include "compare/exact_file.h"
#include "shared_data.h"

namespace millrace {
namespace {

class BenchmarkFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("compare_files." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string choice_error(const std::string& text) const {
    const std::string path = write("wrong", text);
    const auto read = read_choice_file(path);
    return read.ok() ? "" : read.error().message.substr(path.size());
  }
  std::string exact_error(const std::string& text) const {
    const std::string path = write("wrong", text);
    const auto read = read_exact_file(path);
    return read.ok() ? "" : read.error().message.substr(path.size());
  }
  std::filesystem::path folder_;
};

TEST_F(BenchmarkFiles, ChoicesAreToldApart) {
  const auto hellaswag = read_choice_file(write("h", "A man sits. he\n2\nruns.\nflies.\nstands.\nfalls.\n"));
  ASSERT_TRUE(hellaswag.ok()) << hellaswag.error().message;
  EXPECT_EQ(hellaswag->name, "hellaswag");
  EXPECT_EQ(hellaswag->between, " ");
  ASSERT_EQ(hellaswag->questions.size(), 1u);
  EXPECT_EQ(hellaswag->questions[0].right, 2u);
  EXPECT_EQ(hellaswag->questions[0].answers[3], "falls.");
  const auto mmlu = read_choice_file(
      write("m", R"({"samples": [{"prompt": "Q", "options": [" A", " B"], "input_label": 1, "topic": "law"}]})"));
  ASSERT_TRUE(mmlu.ok()) << mmlu.error().message;
  EXPECT_EQ(mmlu->name, "mmlu");
  EXPECT_EQ(mmlu->questions[0].right, 1u);
  EXPECT_EQ(mmlu->questions[0].group, "law");
  const auto lambada = read_choice_file(write("l", "{\"text\": \"It was a dog\"}\n\n{\"text\": \"a b\"}\n"));
  ASSERT_TRUE(lambada.ok()) << lambada.error().message;
  EXPECT_EQ(lambada->name, "lambada");
  ASSERT_EQ(lambada->questions.size(), 2u);
  EXPECT_EQ(lambada->questions[0].context, "It was a");
  EXPECT_EQ(lambada->questions[0].answers, std::vector<std::string>{" dog"});
}

TEST_F(BenchmarkFiles, WrongFilesAreNamed) {
  EXPECT_EQ(choice_error(""), ": is empty");
  EXPECT_EQ(choice_error("context\n1\na\nb\nc\n"), ":1: the last question is cut off");
  EXPECT_EQ(choice_error("context\n4\na\nb\nc\nd\n"), ":2: '4' is not the number of an ending, 0 to 3");
  EXPECT_EQ(choice_error(R"({"samples": [{"prompt": "Q", "options": ["A"], "input_label": 0}]})"),
            ": sample 1: has no \"options\"");
  EXPECT_EQ(choice_error(R"({"samples": [{"prompt": "Q", "options": ["A", "B"], "input_label": 2}]})"),
            ": sample 1: \"input_label\" is not the number of an option");
  EXPECT_EQ(choice_error(R"({"samples": []})"), ": has no questions");
  EXPECT_EQ(choice_error("{\"text\": \"word\"}"), ": passage 1: has only one word");
  EXPECT_EQ(choice_error("{\"txt\": \"a b\"}"), ": passage 1: has no text \"text\"");
  EXPECT_EQ(exact_error("{\"question\": \"a\", \"answer\": \"5\"}"), ": problem 1: its answer has no ####");
  EXPECT_EQ(exact_error("{\"examples\": [{\"input\": 1}]}"), ": example 1: has no text \"input\"");
  const auto missing = read_choice_file("/no/such/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "/no/such/file: cannot be opened: No such file or directory");
}

// acc_norm divides by the answer's characters, not by its bytes or tokens.
TEST(ChoiceScores, ByHand) {
  const ChoiceQuestion question{"", {"éé", "abcdef"}, 1, ""};
  // -3 / 2 = -1.5 against -6 / 6 = -1: the longer answer is likelier a character.
  EXPECT_EQ(score_choice(question, std::vector<ContinuationScore>{{-3, 1, false}, {-6, 2, false}}),
            (std::vector<double>{1, 0}));
  EXPECT_EQ(score_choice(question, std::vector<ContinuationScore>{{-6, 1, false}, {-6, 2, false}}),
            (std::vector<double>{1, 0}));  // the first of equal ones
  EXPECT_EQ(score_choice(question, std::vector<ContinuationScore>{{-1, 1, false}, {-12, 2, false}}),
            (std::vector<double>{0, 0}));
  EXPECT_EQ(score_choice(question, std::vector<ContinuationScore>{{-9, 1, false}, {-2, 2, false}}),
            (std::vector<double>{1, 1}));
}

TEST_F(BenchmarkFiles, ExamplesComeFirstAndAreNotAsked) {
  std::string text;
  for (int i = 0; i < 7; ++i)
    text += "{\"question\": \"q" + std::to_string(i) + "\", \"answer\": \"so #### " + std::to_string(i) + ",000\"}\n";
  const auto gsm8k = read_exact_file(write("g", text));
  ASSERT_TRUE(gsm8k.ok()) << gsm8k.error().message;
  ASSERT_EQ(gsm8k->questions.size(), 2u);
  EXPECT_EQ(gsm8k->questions[1].answer, "6000");
  EXPECT_TRUE(gsm8k->questions[1].prompt.starts_with("Question: q0\nAnswer: so #### 0,000\n\nQuestion: q1\n"));
  EXPECT_TRUE(gsm8k->questions[1].prompt.ends_with("#### 4,000\n\nQuestion: q6\nAnswer:"));
  const auto bbh = read_exact_file(write(
      "word_sorting.json",
      R"({"examples": [{"input": "b a", "target": "a b"}, {"input": "1", "target": "1"}, {"input": "2", "target": "2"}, {"input": "d c", "target": "c d"}]})"));
  ASSERT_TRUE(bbh.ok()) << bbh.error().message;
  EXPECT_EQ(bbh->name, "bbh:word_sorting");
  ASSERT_EQ(bbh->questions.size(), 1u);
  EXPECT_EQ(bbh->questions[0].prompt, "Q: b a\nA: a b\n\nQ: 1\nA: 1\n\nQ: 2\nA: 2\n\nQ: d c\nA:");
}

TEST(ExactMatches, Numbers) {
  const ExactFile gsm8k{"gsm8k", true, {}, 1, {}};
  EXPECT_TRUE(exact_match(gsm8k, "1234", " so it is\n#### 1,234"));
  EXPECT_TRUE(exact_match(gsm8k, "1234", "She has $1,234."));
  EXPECT_TRUE(exact_match(gsm8k, "-5", "5 and then -5 degrees"));
  EXPECT_TRUE(exact_match(gsm8k, "0.5", "The rest is 0.5"));
  EXPECT_FALSE(exact_match(gsm8k, "1234", "#### 12345"));
  EXPECT_FALSE(exact_match(gsm8k, "4", "4 apples and 5 pears"));
  EXPECT_FALSE(exact_match(gsm8k, "", "no number"));
  const ExactFile bbh{"bbh:x", false, {}, 1, {}};
  EXPECT_TRUE(exact_match(bbh, "(B)", " (B)\nQ: next"));
  EXPECT_FALSE(exact_match(bbh, "(B)", "(B) is right"));
}

TEST(SharedBenchmarks, AreReadAsPublished) {
  MILLRACE_NEEDS_SHARED("benchmarks");
  const auto folder = testing::shared_data() / "benchmarks";
  for (const auto& [file, name, questions] : {std::tuple{"hellaswag_val_2000.txt.xz", "hellaswag", 2000},
                                              std::tuple{"lambada_test.jsonl.xz", "lambada", 5153}}) {
    const auto read = read_choice_file(folder / file);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->name, name);
    EXPECT_EQ(std::ssize(read->questions), questions);
  }
  const auto mmlu = read_choice_file(folder / "mmlu_sample.json.xz");
  ASSERT_TRUE(mmlu.ok()) << mmlu.error().message;
  EXPECT_EQ(mmlu->questions.front().right, 2u);
  EXPECT_EQ(mmlu->questions.front().group, "anatomy");
  const auto gsm8k = read_exact_file(folder / "gsm8k_test.jsonl.xz");
  ASSERT_TRUE(gsm8k.ok()) << gsm8k.error().message;
  EXPECT_EQ(gsm8k->questions.size(), 1319u - 5);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "bbh")) {
    const auto bbh = read_exact_file(entry.path());
    ASSERT_TRUE(bbh.ok()) << bbh.error().message;
    for (const ExactQuestion& question : bbh->questions)
      EXPECT_TRUE(exact_match(*bbh, question.answer, " " + question.answer + "\n"));
  }
}

TEST(LlamaCpp, OutputIsRead) {
  const auto speed = read_llama_bench(R"(warning: something
[
  {"model_type": "llama 1B", "n_prompt": 256, "n_gen": 0, "avg_ts": 812.5, "stddev_ts": 1.0}
])",
                                      R"([{"n_prompt": 0, "n_gen": 64, "n_depth": 256, "avg_ts": 42.25}])");
  ASSERT_TRUE(speed.ok()) << speed.error().message;
  EXPECT_EQ(speed->prefill_tokens_per_s, 812.5);
  EXPECT_EQ(speed->decode_tokens_per_s, 42.25);
  const auto after = read_llama_bench(R"([{"n_prompt": 16, "n_gen": 0, "avg_ts": 9, "test": "pp16"}])",
                                      R"([{"n_prompt": 16, "n_gen": 4, "avg_ts": 7, "test": "tg4@pp16"},
                                          {"n_prompt": 16, "n_gen": 4, "avg_ts": 8, "test": "pp16+tg4"},
                                          {"n_prompt": 1, "n_gen": 4, "avg_ts": 6, "test": 3}])");
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(after->prefill_tokens_per_s, 9);
  EXPECT_EQ(after->decode_tokens_per_s, 7);
  const auto nll = read_llama_perplexity(
      "perplexity: 1.5 seconds per pass\n[1]4.0000,[2]8.0000,\nFinal estimate: PPL = 8.0 +/- 0.1\n");
  ASSERT_TRUE(nll.ok()) << nll.error().message;
  ASSERT_EQ(nll->size(), 2u);
  EXPECT_DOUBLE_EQ((*nll)[0], std::log(4.0));
  EXPECT_DOUBLE_EQ((*nll)[1], 2 * std::log(8.0) - std::log(4.0));
  EXPECT_EQ(read_llama_bench("error", "error").error().message,
            "llama-bench: printed no JSON with the speeds of a prompt and of an answer");
  EXPECT_EQ(read_llama_perplexity("[1]nan,").error().message,
            "llama-perplexity: printed no perplexities, \"[1]5.2,[2]6.0,\"");
}

TEST(LlamaCpp, ServerTalk) {
  EXPECT_EQ(llama_server_body({"", "Hello", 7, {"."}}),
            R"({"temperature":0,"cache_prompt":false,"stream":false,"prompt":"Hello","n_predict":7,"stop":["."]})");
  EXPECT_EQ(llama_server_body({R"([{"role":"user"}])", "", 7, {}}),
            R"({"temperature":0,"cache_prompt":false,"stream":false,"messages":[{"role":"user"}],"max_tokens":7})");
  EXPECT_EQ(*read_llama_server(R"({"content": " there"})", false), " there");
  EXPECT_EQ(*read_llama_server(R"({"choices": [{"message": {"content": "yes"}}]})", true), "yes");
  for (const char* wrong : {"", "[]", "{}", R"({"choices": []})", R"({"choices": [{"message": 1}]})"})
    EXPECT_EQ(read_llama_server(wrong, true).error().message, "llama-server: answered without a text");
}

// Against programs that print what the real ones do.
TEST_F(BenchmarkFiles, AnotherEngineIsRun) {
  write(
      "llama-bench",
      "#!/bin/sh\n[ \"$2\" = m.gguf ] && [ \"$4\" = 3 ] || exit 9\n"
      "echo '[{\"n_prompt\": 16, \"n_gen\": 0, \"avg_ts\": 100}, {\"n_prompt\": 0, \"n_gen\": 4, \"avg_ts\": 10}]'\n");
  write("llama-perplexity", "#!/bin/sh\ncat \"$6\" >&2\necho \"[1]2.0000,[2]2.0000,\"\n");
  for (const char* name : {"llama-bench", "llama-perplexity"})
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  const auto engine = make_external_engine("llama_cpp:bin=" + folder_.string(), {"m.gguf", 3});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const auto wanted = [] { return true; };
  const auto speed = (*engine)->speed(16, 4, wanted);
  ASSERT_TRUE(speed.ok()) << speed.error().message;
  EXPECT_EQ(speed->decode_tokens_per_s, 10);
  const auto nll = (*engine)->window_nll("a text", 512, 2, wanted);
  ASSERT_TRUE(nll.ok()) << nll.error().message;
  EXPECT_EQ(nll->size(), 2u);
  EXPECT_EQ((*engine)->speed(16, 4, [] { return false; }).error().kind, ErrorKind::cancelled);
  const auto failing = make_external_engine("llama_cpp:bin=" + folder_.string(), {"other.gguf", 3});
  EXPECT_EQ((*failing)->speed(16, 4, wanted).error().message,
            (folder_ / "llama-bench").string() + ": ended with 9: it printed nothing");
  const auto absent = make_external_engine("llama_cpp:bin=/no/such", {"m.gguf", 3});
  EXPECT_EQ((*absent)->speed(16, 4, wanted).error().message,
            "/no/such/llama-bench: cannot be started: No such file or directory");
  EXPECT_EQ(make_external_engine("llama_cpp", {"m.gguf", 3}).error().message,
            "engine llama_cpp: needs the folder of its programs; write engine=llama_cpp:bin=FOLDER");
  EXPECT_EQ(make_external_engine("llama_cpp:bin=/x", {"", 3}).error().message,
            "engine llama_cpp: needs a model file; name it by -m, or by model= in the configuration");
  EXPECT_EQ(make_external_engine("vllm", {"m", 1}).error().message, "engine: unknown 'vllm'; available: llama_cpp");
}

// Builds end with an error where they lack -d, which ik_llama.cpp calls -gp.
TEST_F(BenchmarkFiles, AnotherEngineDecodesAfterThePrompt) {
  const std::string bench =
      "#!/bin/sh\necho \"$*\" >>" + folder_.string() +
      "/calls\nfor one; do [ \"$one\" != LACKS ] && [ \"$one\" != ALSO ] || exit 1; done\n"
      "echo '[{\"n_prompt\": 16, \"n_gen\": 0, \"avg_ts\": 100}, {\"n_prompt\": 0, \"n_gen\": 4, \"avg_ts\": 10}]'\n";
  const auto engine = make_external_engine("llama_cpp:bin=" + folder_.string(), {"m.gguf", 3});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const auto calls_of = [&](const std::string& text, bool after_prompt) {
    std::filesystem::remove(folder_ / "calls");
    write("llama-bench", text);
    std::filesystem::permissions(folder_ / "llama-bench", std::filesystem::perms::owner_all);
    const auto speed = (*engine)->speed(16, 4, [] { return true; });
    EXPECT_TRUE(speed.ok()) << speed.error().message;
    EXPECT_EQ(speed->after_prompt, after_prompt);
    std::ifstream file(folder_ / "calls");
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  };
  const std::string prefill = "-m m.gguf -t 3 -p 16 -n 0 -r 1 -o json\n",
                    decode = "-m m.gguf -t 3 -p 0 -n 4 -r 1 -o json";
  EXPECT_EQ(calls_of(bench, true), prefill + decode + " -d 16\n");
  const std::string other = "-m m.gguf -t 3 -p 0 -n 0 -r 1 -o json -gp 16,4\n";
  std::string old = bench;
  old.replace(old.find("LACKS"), 5, "-d");
  EXPECT_EQ(calls_of(old, true), prefill + decode + " -d 16\n" + other);
  old.replace(old.find("ALSO"), 4, "-gp");
  EXPECT_EQ(calls_of(old, false), prefill + decode + " -d 16\n" + other + decode + "\n");
}

}  // namespace
}  // namespace millrace
