// Weights from the packed cache: the same streams bit for bit as with all weights in memory, dense models and mixtures
// of experts; layers leave this process's memory after the pass; a budget smaller than the weights suffices; weights
// that cannot be read end the streams of that step, and later ones run.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "copied_models.h"
#include "engine/engine_core.h"
#include "models/weight_source.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class WeightSources : public CopiedModels {
 protected:
  Result<std::shared_ptr<const LanguageModel>> load(const std::string& path, const std::string& weights) {
    LoadOptions options;
    options.threads = 2;
    options.context = 128;
    options.weights = weights;
    options.warn = [&](const std::string& message) { warnings_.push_back(message); };
    return LanguageModel::load(path, options);
  }
  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<float> logits;
    bool operator==(const Answer&) const = default;
  };
  // Two streams in one batch, with prefill in chunks.
  Answer answer(const std::shared_ptr<const LanguageModel>& model) {
    Answer out;
    auto core = EngineCore::create(model, {.threads = 2, .context = 128, .max_streams = 2, .batch_tokens = 16});
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    for (RequestId id : {1, 2}) {
      Request request;
      for (TokenId i = 0; i < 20; ++i) request.prompt.push_back(1 + (i * 7 + static_cast<TokenId>(id)) % 40);
      request.max_tokens = 6;
      request.ignore_eos = true;
      EXPECT_TRUE((*core)->add(id, request).ok());
    }
    std::vector<TokenEvent> events;
    while (!(*core)->idle()) {
      (*core)->step(events);
      out.logits.insert(out.logits.end(), (*core)->last_logits(), (*core)->last_logits() + model->info().vocab);
    }
    for (const TokenEvent& event : events) out.tokens.push_back(event.token);
    return out;
  }
  // The tokens of one stream, or its error.
  static Result<std::vector<TokenId>> run_stream(EngineCore& core, RequestId id) {
    Request request;
    request.prompt = {1, 5, 9, 2};
    request.max_tokens = 5;
    request.ignore_eos = true;
    MILLRACE_TRY_VOID(core.add(id, request));
    std::vector<TokenEvent> events;
    while (!core.idle()) core.step(events);
    std::vector<TokenId> tokens;
    for (const TokenEvent& event : events) {
      if (event.error.message != "") return event.error;
      tokens.push_back(event.token);
    }
    return tokens;
  }
  // Of the cache file's mappings.
  int64_t resident(const std::string& model) {
    std::ifstream maps("/proc/self/smaps");
    int64_t bytes = 0;
    bool ours = false;
    for (std::string line; std::getline(maps, line);) {
      if (line.find('-') < line.find(' ')) ours = line.ends_with(model + ".millrace-packed");
      if (!ours || !line.starts_with("Rss:")) continue;
      std::istringstream text(line.substr(4));
      int64_t kb = 0;
      text >> kb;
      bytes += kb * 1024;
    }
    return bytes;
  }

  // The least memory of a source with these options: found by its own error.
  int64_t least_memory(const std::string& path, const std::string& source = "experts:") {
    int64_t low = 1, high = int64_t{1} << 26;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (load(path, fmt::format("{}memory={}", source, middle)).ok())
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  std::vector<std::string> warnings_;
};

TEST_F(WeightSources, MappedGivesTheSameBits) {
  for (const char* name : {"llama", "mixtral", "qwen2moe", "gemma3", "mamba", "deepseek2_groups"}) {
    const std::string path = copy_of(fmt::format("tests/golden/{}/model.gguf", name));
    auto plain = load(path, "resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    EXPECT_FALSE(fs::exists(path + ".millrace-packed"));
    const Answer want = answer(*plain);
    for (const char* weights : {"mapped", "mapped:ahead=0", "mapped:ahead=3,pinned=1", "mapped:pinned=64"}) {
      auto mapped = load(path, weights);
      ASSERT_TRUE(mapped.ok()) << mapped.error().message;
      EXPECT_TRUE(fs::exists(path + ".millrace-packed"));
      EXPECT_TRUE(answer(*mapped) == want) << name << " " << weights;
    }
  }
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(WeightSources, StreamGivesTheSameBits) {
  for (const char* name : {"llama", "mixtral", "gemma3", "mamba", "deepseek2_groups", "qwen3next"}) {
    const std::string path = copy_of(fmt::format("tests/golden/{}/model.gguf", name));
    auto plain = load(path, "resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    const Answer want = answer(*plain);
    for (const char* weights : {"stream", "stream:resident=0,ahead=0", "stream:resident=0,ahead=1,depth=1",
                                "stream:resident=0,ahead=2,place=blk.0.*=memory"}) {
      auto streamed = load(path, weights);
      ASSERT_TRUE(streamed.ok()) << name << " " << weights << ": " << streamed.error().message;
      EXPECT_TRUE(answer(*streamed) == want) << name << " " << weights;
      const auto figures = (*streamed)->parts().model->source()->figures();
      const bool reads = std::string(weights) != "stream";
      EXPECT_EQ(figures->bytes_read > 0, reads) << name << " " << weights;
    }
  }
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(WeightSources, ExpertsGiveTheSameBits) {
  for (const char* name : {"mixtral", "qwen2moe", "deepseek2_groups", "gemma4_moe", "gpt_oss", "qwen3next"}) {
    const std::string path = copy_of(fmt::format("tests/golden/{}/model.gguf", name));
    auto plain = load(path, "resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    const Answer want = answer(*plain);
    auto least = load(path, "experts:memory=1");
    ASSERT_FALSE(least.ok());
    EXPECT_EQ(least.error().kind, ErrorKind::resource);
    const int64_t lowest = least_memory(path);
    for (const std::string options :
         {"keep=weighed", "keep=lru,guess=none", "keep=lfu,guess=pairs", "keep=arc,guesses=1"}) {
      for (const int64_t extra : {int64_t{0}, int64_t{1} << 16}) {
        const int64_t counts = options.ends_with("pairs") ? int64_t{1} << 14 : 0;  // of experts, at most
        const int64_t memory = lowest + counts + extra;
        const std::string weights = fmt::format("experts:{},memory={}", options, memory);
        auto cached = load(path, weights);
        ASSERT_TRUE(cached.ok()) << name << " " << weights << ": " << cached.error().message;
        EXPECT_TRUE(answer(*cached) == want) << name << " " << weights;
        const WeightFigures figures = *(*cached)->parts().model->source()->figures();
        EXPECT_GT(figures.misses, 0);
        EXPECT_LE(figures.kept_bytes + figures.cache_bytes, memory);
      }
    }
  }
  EXPECT_NE(load(copy_of("tests/golden/llama/model.gguf"), "experts").error().message.find("has no mixture of experts"),
            std::string::npos);
}

// With all memory, with the least, and with some in between: weights, and at times keys, are read from the disk.
TEST_F(WeightSources, FlexgenGivesTheSameBits) {
  bool keys_on_disk = false, reads = false;
  for (const char* name : {"llama", "mixtral", "mamba", "deepseek2_groups", "qwen3next"}) {
    const std::string path = copy_of(fmt::format("tests/golden/{}/model.gguf", name));
    auto plain = load(path, "resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    const Answer want = answer(*plain);
    const std::string source = "flexgen:streams=2,prompt=100,generated=28,ahead=1,";
    const int64_t least = least_memory(path, source), all = (*plain)->parts().model->weight_bytes();
    const std::string keys = source + "keys=memory,";
    for (const std::string& weights : {std::string("flexgen"), fmt::format("{}memory={}", source, least),
                                       fmt::format("{}memory={}", source, least + all / 4),
                                       fmt::format("{}memory={}", keys, least_memory(path, keys) + all / 8)}) {
      auto placed = load(path, weights);
      ASSERT_TRUE(placed.ok()) << name << " " << weights << ": " << placed.error().message;
      EXPECT_TRUE(answer(*placed) == want) << name << " " << weights;
      const WeightSource& made = *(*placed)->parts().model->source();
      // Keys of some of these tiny models take more than their weights, which then all stay.
      reads = reads || made.figures()->bytes_read > 0;
      if (weights == "flexgen") {
        EXPECT_EQ(made.figures()->bytes_read, 0) << name;
      }
      EXPECT_TRUE(made.policy().text.starts_with("block of ")) << made.policy().text;
      if (weights.ends_with(fmt::format(",memory={}", least))) {
        EXPECT_LE(made.figures()->kept_bytes + made.figures()->cache_bytes, least);
      }
      keys_on_disk = keys_on_disk || made.policy().keys_on_disk > 0;
    }
  }
  EXPECT_TRUE(keys_on_disk);
  EXPECT_TRUE(reads);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

// The file is cut off, and later damaged, while an engine runs.
TEST_F(WeightSources, WeightsThatCannotBeReadEndTheStreamsOfTheStep) {
  for (const auto& [model, weights] : {std::pair("llama", "stream:resident=0,ahead=0"), {"mixtral", ""}}) {
    const std::string path = copy_of(fmt::format("tests/golden/{}/model.gguf", model)),
                      cache = path + ".millrace-packed";
    const std::string chosen = *weights ? weights : fmt::format("experts:memory={}", least_memory(path));
    auto plain = load(path, "resident");
    auto want_core = EngineCore::create(*plain, {.threads = 2, .context = 128, .max_streams = 2});
    ASSERT_TRUE(want_core.ok());
    const auto want = run_stream(**want_core, 1);
    ASSERT_TRUE(want.ok());
    auto loaded = load(path, chosen);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    auto core = EngineCore::create(*loaded, {.threads = 2, .context = 128, .max_streams = 2});
    ASSERT_TRUE(core.ok()) << core.error().message;
    std::string bytes;
    {
      std::ifstream in(cache, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    const auto write = [&](const std::string& text) {
      std::fstream(cache, std::ios::binary | std::ios::in | std::ios::out).write(text.data(), std::ssize(text));
    };
    EXPECT_EQ(*run_stream(**core, 2), *want);
    auto other = EngineCore::create(*loaded, {.threads = 2, .context = 128, .max_streams = 2});
    ASSERT_TRUE(other.ok()) << other.error().message;
    fs::resize_file(cache, (int64_t{2} << 20) + 4096);
    const auto cut = run_stream(**core, 3);
    ASSERT_FALSE(cut.ok()) << model;
    EXPECT_NE(cut.error().message.find("it was cut off while in use"), std::string::npos) << cut.error().message;
    write(bytes);
    // The failed pass was not one of this engine's.
    const auto unharmed = run_stream(**other, 1);
    ASSERT_TRUE(unharmed.ok()) << unharmed.error().message;
    EXPECT_EQ(*unharmed, *want);
    const auto again = run_stream(**core, 4);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, *want);
    std::string damaged = bytes;
    for (size_t at = size_t{2} << 20; at < damaged.size(); at += 4096) damaged[at] ^= 1;
    write(damaged);
    const auto wrong = run_stream(**core, 5);
    ASSERT_FALSE(wrong.ok()) << model;
    EXPECT_EQ(wrong.error().kind, ErrorKind::internal);
    EXPECT_NE(wrong.error().message.find("is damaged between bytes"), std::string::npos) << wrong.error().message;
    write(bytes);
    EXPECT_EQ(*run_stream(**core, 6), *want);
  }
}

// The cache that is packed into its file is the one that a start with all weights in memory writes.
TEST_F(WeightSources, PackTheSameFile) {
  const std::string path = copy_of("tests/golden/llama/model.gguf"), cache = path + ".millrace-packed";
  const auto read = [&] {
    std::ifstream in(cache, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  ASSERT_TRUE(load(path, "mapped").ok());
  const std::string packed = read();
  fs::remove(cache);
  LoadOptions options;
  options.packed_cache = true;
  ASSERT_TRUE(LanguageModel::load(path, options).ok());
  EXPECT_TRUE(read() == packed);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2) << "no temporary file is left";
  // A damaged one is packed again.
  std::string damaged = packed;
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(cache, std::ios::binary) << damaged;
  ASSERT_TRUE(load(path, "mapped").ok());
  EXPECT_TRUE(read() == packed);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("; packing again"), std::string::npos) << warnings_[0];
}

TEST_F(WeightSources, LayersLeaveMemoryAfterThePass) {
  const std::string path = copy_of("models/millrace-stories-6m.gguf");
  auto model = load(path, "mapped:ahead=1");
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Model& own = *(*model)->parts().model;
  int64_t layer = 0, all = own.weight_bytes();
  const LayerWeights& first = own.layer(0);
  for (const Weight* weight :
       {&first.q, &first.k, &first.v, &first.output, &first.mlp.gate, &first.mlp.up, &first.mlp.down})
    layer += weight->packed.bytes();
  EXPECT_LT(resident(path), all / 8);  // checked, but not kept
  answer(*model);
  const int64_t others = all - own.spec().layer_count() * layer, slack = int64_t{1} << 20;
  EXPECT_LE(resident(path), others + 3 * layer + slack);
  EXPECT_LT(resident(path), all - layer);
  auto pinned = load(path, "mapped:pinned=64");
  ASSERT_TRUE(pinned.ok());
  model = Error::user("dropped");
  answer(*pinned);
  EXPECT_GT(resident(path), all - layer);
}

TEST_F(WeightSources, ABudgetBelowTheWeightsSuffices) {
  const std::string path = copy_of("models/millrace-stories-6m.gguf");
  const auto charged = [](const LanguageModel& model) {
    for (const MemoryAccount& one : model.parts().accounts->list())
      if (one.name == "weights") return one.bytes;
    return int64_t{0};
  };
  auto unlimited = load(path, "mapped");
  ASSERT_TRUE(unlimited.ok()) << unlimited.error().message;
  const int64_t all = (*unlimited)->parts().model->weight_bytes();
  EXPECT_LT(charged(**unlimited), all);
  EXPECT_GT(charged(**unlimited), all / 6);
  auto pinned = load(path, "mapped:pinned=64");
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(charged(**pinned), all);
}

TEST_F(WeightSources, SaysWhatIsWrong) {
  const std::string path = copy_of("tests/golden/llama/model.gguf");
  const auto message = [&](const std::string& model, const std::string& weights) {
    auto loaded = load(model, weights);
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? "" : loaded.error().message;
  };
  EXPECT_EQ(message(path, "swapped"), "weights: unknown 'swapped'; available: " + weight_sources().names());
  EXPECT_EQ(message(path, "mapped:ahead=65"), "weights mapped: ahead: must be between 0 and 64, got 65");
  const auto contains = [&](const std::string& weights, const std::string& part) {
    const std::string text = message(path, weights);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains("stream:memory=1000", "and weights may have");
  contains("stream:memory=many", "weights stream: memory: ");
  contains("stream:place=*attn*", "place: expected PATTERN=memory or PATTERN=disk, got *attn*");
  contains("stream:place=blk.77.*=memory", "place: no tensor of a layer matches blk.77.*");
  contains("experts:keep=fifo", "has no mixture of experts");
  contains("flexgen:memory=1000", "do not fit into 1.0 kB; raise --memory");
  contains("flexgen:keys=disk", "keys: must be auto or memory, got disk");
  const std::string mixture = copy_of("tests/golden/mixtral/model.gguf");
  EXPECT_NE(message(mixture, "experts:keep=fifo").find("keep: must be weighed, lru, lfu or arc, got fifo"),
            std::string::npos);
  EXPECT_NE(message(mixture, "experts:guess=luck").find("guess: must be router, pairs or none, got luck"),
            std::string::npos);
  EXPECT_EQ(message(path, "mapped:behind=1"), "weights mapped: behind: no such option; known: ahead, pinned");
  EXPECT_NE(message("", "mapped")
                .find("weights mapped: reads weights from a packed cache, and this model has no file for one"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
