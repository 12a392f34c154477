#include <gtest/gtest.h>

#include "shared_data.h"
#include "workload/line_source.h"
#include "workload/trace_format.h"

namespace millrace {
namespace {

std::vector<WorkloadRequest> read(std::string_view bytes, const TraceOptions& options = {}) {
  auto requests = read_trace_image(bytes, "sample", options);
  EXPECT_TRUE(requests.ok()) << requests.error().message;
  return requests.ok() ? std::move(requests).value() : std::vector<WorkloadRequest>();
}

std::string defect(std::string_view bytes, const TraceOptions& options = {}) {
  auto requests = read_trace_image(bytes, "sample", options);
  return requests.ok() ? "no error" : requests.error().message;
}

std::string pack(const std::string& text) {
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()),
                                    text.size(), reinterpret_cast<uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

constexpr const char* kMooncakeSample =
    R"({"timestamp": 1500, "input_length": 700, "output_length": 3, "hash_ids": [0, 4]}
{"timestamp": 500, "input_length": 512, "output_length": 9, "hash_ids": [0]}
)";

TEST(Trace, MooncakeIsSortedByArrivalFromZero) {
  const auto requests = read(kMooncakeSample);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt_tokens, 512);
  EXPECT_EQ(requests[0].arrival_seconds, 0);
  EXPECT_EQ(requests[1].arrival_seconds, 1);
  EXPECT_EQ(requests[1].id, 1u);
  EXPECT_EQ(requests[1].prefix_hashes, (std::vector<uint64_t>{0, 4}));
  EXPECT_EQ(requests[1].hash_block_tokens, 512);
}

TEST(Trace, AzureKeepsHundredNanoseconds) {
  const auto requests = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.9999999,4808,10\r\n2023-11-17 "
      "00:00:00.0000000,110,27");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt_tokens, 4808);
  EXPECT_EQ(requests[1].output_tokens, 27);
  EXPECT_NEAR(requests[1].arrival_seconds, 1e-7, 1e-12);
}

TEST(Trace, VidurTracesWithAndWithoutArrivals) {
  EXPECT_EQ(read("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.5,396,109\n")[1].arrival_seconds, 4.5);
  const auto lengths = read("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n");
  EXPECT_EQ(lengths[0].prompt_tokens, 3772);
  EXPECT_EQ(lengths[0].output_tokens, 54);
}

TEST(Trace, BurstGptHasTwoFormats) {
  const auto old_shape = read(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n");
  EXPECT_EQ(old_shape[0].prompt_tokens, 472);
  EXPECT_EQ(old_shape[0].tenant, "ChatGPT");
  const auto new_shape = read(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\n5.5,77,2,GPT-4,10,0,10,API log\n6,78,2,GPT-4,11,5,16,API log\n");
  EXPECT_EQ(new_shape[0].session, "77");
  EXPECT_EQ(new_shape[0].output_tokens, 0);  // a failed request
  EXPECT_EQ(new_shape[1].arrival_seconds, 0.5);
}

TEST(Trace, TokenIdsAreThePrompt) {
  const auto requests = read(R"({"input_toks":3,"output_toks":70,"arrival_time_ns":46926808,"input_tok_ids":[7,8,9]}
{"input_toks":5,"output_toks":1,"arrival_time_ns":46926809}
)");
  EXPECT_EQ(requests[0].tokens, (std::vector<TokenId>{7, 8, 9}));
  EXPECT_TRUE(requests[1].tokens.empty());
  EXPECT_NEAR(requests[1].arrival_seconds, 1e-9, 1e-15);
}

TEST(Trace, AgentTextSharesItsPrefixByBytesOrByTokens) {
  const std::string head(70, 'x');
  const std::string sample = R"({"timestamp": 1760428436442742, "session_id": "s", "input": ")" + head +
                             R"(a", "output": "123456789"})" + "\n" +
                             R"({"timestamp": 1760428436442999, "session_id": "s", "input": ")" + head +
                             R"(b and more", "output": ""})";
  TraceOptions options;
  options.text_block_tokens = 4;
  auto requests = read(sample, options);
  EXPECT_EQ(requests[0].prompt_tokens, 18);  // 71 bytes, four per token
  EXPECT_EQ(requests[0].output_tokens, 3);
  EXPECT_EQ(requests[0].session, "s");
  ASSERT_EQ(requests[0].prefix_hashes.size(), 4u);
  ASSERT_EQ(requests[1].prefix_hashes.size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(requests[0].prefix_hashes[i], requests[1].prefix_hashes[i]);
  EXPECT_NEAR(requests[1].arrival_seconds, 257e-6, 1e-12);
  options.encode = [](std::string_view text) -> Result<std::vector<TokenId>> {
    return std::vector<TokenId>(text.begin(), text.end());
  };
  requests = read(sample, options);
  EXPECT_EQ(requests[0].prompt_tokens, 71);
  EXPECT_EQ(requests[0].tokens[70], 'a');
  EXPECT_EQ(read(R"({"timestamp": 1, "input": "", "output": "x"})")[0].prompt_tokens, 1);
}

TEST(Trace, AibrixHasSimultaneousRequests) {
  const auto requests = read(
      R"({"timestamp": 21, "requests": [{"Prompt Length": 9, "Output Length": 2, "prompt": "a b"}, {"Prompt Length": 4, "Output Length": 0, "prompt": "c"}]})");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt_tokens, 9);
  EXPECT_EQ(requests[1].id, 1u);
}

TEST(Trace, OtelSpansAreRequests) {
  std::string sample = R"({"file": "x", "trace": {"trace_id": "t", "spans": [
{"start_time": "2026-02-25T12:00:01.500000", "attributes": {"gen_ai.input.messages": "[{\"role\": \"user\", \"content\": \"hello you\"}]", "gen_ai.output.text": "12345678"}, "trace_id": "t"},
{"start_time": "2026-02-25T12:00:00.000000", "attributes": {"tool": 1}},
{"start_time": "2026-02-25T12:00:00.500000Z", "attributes": {"gen_ai.input.messages": [{"role": "user", "content": [1]}], "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 5}, "trace_id": "t"}]}})";
  std::erase(sample, '\n');
  const auto requests = read(sample);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt_tokens, 12);
  EXPECT_EQ(requests[0].output_tokens, 5);
  EXPECT_EQ(requests[1].prompt_tokens, 4);  // "user\nhello you\n"
  EXPECT_EQ(requests[1].output_tokens, 2);
  EXPECT_EQ(requests[1].arrival_seconds, 1);
  EXPECT_EQ(requests[1].session, "t");
}

TEST(Trace, DefectsNameFileLineAndField) {
  const std::string good = R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]})"
                           "\n";
  EXPECT_EQ(defect(good + R"({"timestamp": 1, "input_length": 5, "output_length": -1, "hash_ids": [1]})"),
            "sample:2: output_length: must be a whole number from 0 to 16777216, is -1");
  EXPECT_EQ(defect(good + "\n" + R"({"timestamp": 1, "output_length": 1, "hash_ids": [1]})"),
            "sample:3: input_length: is missing");
  EXPECT_EQ(defect(good + "{"), "sample:2: is not valid JSON");
  EXPECT_EQ(defect(good + R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]})"),
            "sample:2: hash_ids: 2 blocks of 512 tokens, but the prompt has 5 tokens");
  EXPECT_EQ(defect(good + R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": ["a"]})"),
            "sample:2: hash_ids: element 0 is not a whole number");
  EXPECT_EQ(defect(good + std::string(40, '[')), "sample:2: JSON nests deeper than 32");
  const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  EXPECT_EQ(defect(azure + "2023-02-29 18:17:03.0,1,1"),
            "sample:2: TIMESTAMP: must look like 2023-11-16 18:17:03.9799600");
  EXPECT_EQ(defect(azure + "2023-11-16 18:17:03.0,1"), "sample:2: has 2 fields, the header 3");
  EXPECT_EQ(defect(azure + "2023-11-16 18:17:03.0,1e3,1"),
            "sample:2: ContextTokens: must be a whole number from 1 to 16777216, is '1e3'");
  EXPECT_EQ(defect(azure), "sample: contains no requests");
  EXPECT_EQ(defect("arrived_at,num_prefill_tokens,num_decode_tokens\nnan,1,1"),
            "sample:2: arrived_at: must be a number from 0 to 100000000000, is 'nan'");
  EXPECT_EQ(defect(R"({"input_toks":2,"output_toks":70,"arrival_time_ns":4,"input_tok_ids":[7]})"),
            "sample:1: input_tok_ids: has 1 tokens, input_toks says 2");
  EXPECT_EQ(defect(R"({"timestamp": 1, "input": 7, "output": "x"})"), "sample:1: input: must be text, is 7");
  EXPECT_EQ(defect("hello"),
            "sample: its first line matches no known trace format; available: " + trace_formats().names());
  TraceOptions options;
  options.format = "azure";
  EXPECT_EQ(defect(good, options), "sample:1: the header has no column 'TIMESTAMP'");
}

TEST(Trace, LimitScaleAndRate) {
  const std::string sample = "arrived_at,num_prefill_tokens,num_decode_tokens\n1,1,1\n3,2,1\n5,3,1\n9,4,1\n";
  TraceOptions options;
  options.limit = 3;
  options.scale = 2;
  auto requests = read(sample, options);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[2].arrival_seconds, 2);
  options.rate = 4;
  EXPECT_EQ(read(sample, options)[2].arrival_seconds, 0.5);
  EXPECT_EQ(defect("num_prefill_tokens,num_decode_tokens\n1,1\n2,2\n", options),
            "rate: the trace has no arrival times to rescale; generate them with --arrivals poisson");
  options.scale = 0;
  EXPECT_EQ(defect(sample, options), "scale: must be above 0 and at most 1e9, got 0");
}

TEST(Trace, PackedTraceEqualsThePlainOne) {
  std::string plain = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
  for (int i = 0; i < 30000; ++i) plain += fmt::format("{},{},{}\n", i, 1 + i % 977, i % 31);
  const std::string packed = pack(plain);
  const auto a = read(plain), b = read(packed), twice = read(packed + pack("30000,5,5\n"));
  ASSERT_EQ(a.size(), 30000u);
  ASSERT_EQ(b.size(), a.size());
  EXPECT_EQ(twice.size(), a.size() + 1);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i].prompt_tokens, b[i].prompt_tokens);
  EXPECT_NE(defect(packed.substr(0, packed.size() / 2)).find("sample: the packed data is cut off after line "),
            std::string::npos);
  std::string damaged = packed;
  damaged[packed.size() - 1] ^= 1;  // in the end mark
  EXPECT_NE(defect(damaged).find("sample: the packed data is damaged after line "), std::string::npos);
  damaged = packed;
  damaged[packed.size() / 2] ^= 1;  // detected by an invalid line or by the checksum
  EXPECT_NE(defect(damaged), "no error");
}

TEST(Trace, TimeStamps) {
  EXPECT_EQ(parse_timestamp("1970-01-01 00:00:00"), 0);
  EXPECT_EQ(parse_timestamp("2000-02-29T00:00:01.5Z"), 951782401'500000000);
  EXPECT_EQ(parse_timestamp("2023-11-16 18:17:03.9799600"), 1700158623'979960000);
  EXPECT_EQ(parse_timestamp("2023-11-16T19:17:03.5+01:00"), 1700158623'500000000);
  EXPECT_EQ(parse_timestamp("2023-11-16 12:47:03-05:30"), 1700158623'000000000);
  for (const char* bad : {"", "2023-11-16 18:17:03+1:00", "2023-11-16 18:17:03+24:00", "2023-11-16",
                          "2023-13-16 18:17:03", "2023-11-31 18:17:03", "2023-11-16 24:17:03", "2023-11-16 18:17:03.",
                          "2023-11-16 18:17:03.1234567890", "1969-12-31 00:00:00"})
    EXPECT_FALSE(parse_timestamp(bad)) << bad;
}

TEST(Trace, AcceptsAllLineEndings) {
  auto source = LineSource::from_bytes(
      "\xef\xbb\xbf"
      "a\r\n\nb",
      "x");
  std::string_view line;
  std::vector<std::string> lines;
  for (;;) {
    auto more = source->next(line);
    ASSERT_TRUE(more.ok());
    if (!*more) break;
    lines.emplace_back(line);
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(source->number(), 3);
}

// Known contents of the published files: counts and sums computed independently.
struct Published {
  const char* file;
  size_t requests;
  double last_arrival;
  int64_t prompt_tokens, output_tokens;
};

// label(once): reads whole published traces
TEST(Trace, PublishedFiles) {
  constexpr Published kFiles[] = {
      {"mooncake_conversation_trace.jsonl.xz", 12031, 3536.999, 144793823, 4122048},
      {"mooncake_synthetic_trace.jsonl.xz", 3993, 1022.025, 61194628, 595432},
      {"azure_llm_2023_code.csv", 8819, 3435.9480560000084, 18059974, 245896},
      {"azure_llm_2023_conv.csv", 19366, 3501.721936999995, 22361870, 4088665},
      {"vidur_splitwise_conv.csv", 19366, 3501.721937, 22361870, 4088665},
      {"vidur_arxiv_summarization_lengths.csv.xz", 28257, 0.0, 73131321, 8234948},
      {"llmservingsim_example_agentic.jsonl", 10, 0.980043269, 120, 591},
      {"llmservingsim_mixed_44k.jsonl", 608, 60.898463, 5604402, 1837003},
      {"sharegpt_llama31_300_tokens.jsonl.xz", 300, 29.136836395000003, 257239, 195753},
      {"sharegpt_qwen3_300_tokens.jsonl.xz", 300, 29.136836395000003, 258691, 199486},
      {"aibrix_autoscale_5s.jsonl.xz", 203, 4.972, 161656, 26610},
      {"aibrix_autoscale_8min.jsonl.xz", 2026, 455.89799999999997, 594911, 148468},
      {"agent_magagent.jsonl.xz", 746, 6448.642891, 1512212, 465834},
      {"agent_miniswe.jsonl.xz", 402, 552.13151, 2418842, 45891},
  };
  MILLRACE_NEEDS_SHARED("traces");
  for (const Published& known : kFiles) {
    auto requests = read_trace((testing::shared_data() / "traces" / known.file).string());
    ASSERT_TRUE(requests.ok()) << requests.error().message;
    int64_t prompt = 0, output = 0;
    for (const auto& request : *requests) prompt += request.prompt_tokens, output += request.output_tokens;
    EXPECT_EQ(requests->size(), known.requests) << known.file;
    EXPECT_NEAR(requests->back().arrival_seconds, known.last_arrival, 1e-6) << known.file;
    EXPECT_EQ(prompt, known.prompt_tokens) << known.file;
    EXPECT_EQ(output, known.output_tokens) << known.file;
  }
}

}  // namespace
}  // namespace millrace
