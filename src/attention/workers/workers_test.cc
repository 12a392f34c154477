// The protocol of attention workers: outputs of a worker in this process have the bits of attention in place, and
// frames with any number out of range are refused.
#include "attention/workers/workers.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "attention/workers/worker.h"
#include "base/cpu.h"
#include "base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kWorkerHeads = 8, kWorkerKvHeads = 4, kWorkerDim = 32, kWorkerContext = 600, kWorkerBlock = 16;

// Workers at ports of this machine, each of which serves one engine.
class LocalWorkers {
 public:
  explicit LocalWorkers(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in own{};
      own.sin_family = AF_INET;
      own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof(own);
      EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&own), size), 0);
      EXPECT_EQ(listen(socket, 1), 0);
      EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size), 0);
      hosts.push_back("127.0.0.1:" + std::to_string(ntohs(own.sin_port)));
      threads_.emplace_back([socket] {
        WorkerLink link(accept(socket, nullptr, nullptr), 0);
        close(socket);
        EXPECT_TRUE(serve_attention(link, -1, {}).ok());
      });
    }
  }
  ~LocalWorkers() {
    for (std::thread& thread : threads_) thread.join();
  }
  std::vector<std::string> hosts;

 private:
  std::vector<std::thread> threads_;
};

KvLayout worker_layout(const char* format) {
  KvLayout layout{find_format(format), kWorkerBlock, std::vector<KvLayer>(2, {kWorkerKvHeads, kWorkerDim})};
  for (KvLayer& layer : layout.layers) layer.heads_each = kWorkerHeads / kWorkerKvHeads;
  return layout;
}

std::vector<float> drawn_rows(uint64_t stream, int64_t floats) {
  std::vector<float> out(static_cast<size_t>(floats));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(2 * philox_uniform(7, stream, i) - 1);
  return out;
}

// Two streams: 300 tokens in two chunks, and 5 tokens. Both layers; the second with a window, softcap and sinks.
struct BothWays {
  KernelTable kernels = make_kernel_table(select_isa().value());
  ThreadPool threads{2};
  KvPool pool;
  AttentionWorkers& workers;

  std::vector<float> sinks = drawn_rows(3, kWorkerHeads);

  void expect_same(const Batch& batch, uint64_t draw) {
    const int64_t tokens = batch.size(), q_width = kWorkerHeads * kWorkerDim, kv_width = kWorkerKvHeads * kWorkerDim;
    workers.begin(0, batch);
    for (int64_t at = 0; at < 2; ++at) {
      AttentionLayer layer{at, kWorkerHeads, kWorkerKvHeads, kWorkerDim};
      if (at == 1) layer.window = 100, layer.softcap = 5, layer.sinks = sinks.data();
      const auto k = drawn_rows(draw + 10, tokens * kv_width), v = drawn_rows(draw + 20, tokens * kv_width);
      const auto q = drawn_rows(draw + 30, tokens * q_width);
      store(batch, at, k, v);
      std::vector<float> expected(q.size()), shown(q.size(), 9.0f);
      std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(
          threads.threads(), kWorkerContext, kWorkerHeads / kWorkerKvHeads, kWorkerDim, kWorkerKvHeads)));
      std::vector<const uint8_t*> pointers(
          static_cast<size_t>(attention_scratch_pointers(threads.threads(), kWorkerContext, kWorkerBlock)));
      attend(batch, layer, kernels, threads, pool, q.data(), expected.data(), kWorkerContext, scratch.data(),
             pointers.data());
      workers.store(0, at, tokens, k.data(), v.data());
      workers.attend(0, batch, layer, q.data(), shown.data());
      EXPECT_EQ(std::memcmp(shown.data(), expected.data(), shown.size() * sizeof(float)), 0) << "layer " << at;
    }
    EXPECT_TRUE(workers.take_failure().ok());
  }

  void store(const Batch& batch, int64_t layer, const std::vector<float>& k, const std::vector<float>& v) {
    const RowCodec& codec = *kernels.find_codec(pool.layout().format);
    for (const BatchSpan& span : batch.spans)
      for (int64_t t = span.begin; t < span.begin + span.count; ++t) {
        const int64_t slot = span.first_slot + t - span.begin;
        const BlockId block = batch.block_tables[static_cast<size_t>(span.table + slot / kWorkerBlock)];
        for (int64_t h = 0; h < kWorkerKvHeads; ++h) {
          const auto from = static_cast<size_t>((t * kWorkerKvHeads + h) * kWorkerDim);
          const int64_t within = slot % kWorkerBlock * pool.row_bytes(layer);
          codec.encode(&k[from], pool.keys(layer, block, h) + within, kWorkerDim);
          codec.encode(&v[from], pool.values(layer, block, h) + within, kWorkerDim);
        }
      }
  }
};

Batch worker_batch(std::vector<BatchSpan> spans) {
  Batch batch;
  for (BlockId b = 0; b < 40; ++b) batch.block_tables.push_back((7 * b + 3) % 40);
  int64_t tokens = 0;
  for (BatchSpan& span : spans) {
    span.begin = tokens;
    tokens += span.count;
  }
  batch.spans = std::move(spans);
  batch.tokens.resize(static_cast<size_t>(tokens));
  return batch;
}

TEST(AttentionWorkersInThreads, HaveTheBitsOfAttentionInPlace) {
  for (const int64_t count : {1, 3, 4}) {
    for (const char* format : {"f32", "f16", "q8_0"}) {
      SCOPED_TRACE(format);
      LocalWorkers local(count);
      AttentionWorkers::Sizes sizes{.layout = worker_layout(format),
                                    .blocks = 40,
                                    .places = {},
                                    .heads = {{kWorkerHeads, kWorkerKvHeads, kWorkerDim}},
                                    .tokens = 300,
                                    .context = kWorkerContext,
                                    .isa = select_isa().value()};
      auto workers = AttentionWorkers::start({.count = count, .threads = 2, .hosts = local.hosts}, sizes);
      ASSERT_TRUE(workers.ok()) << workers.error().message;
      auto pool = KvPool::create(sizes.layout, 40);
      ASSERT_TRUE(pool.ok());
      BothWays ways{.pool = std::move(*pool), .workers = **workers};
      ways.expect_same(worker_batch({{.count = 280, .first_slot = 0, .table = 0, .table_size = 20},
                                     {.count = 5, .first_slot = 0, .table = 20, .table_size = 1}}),
                       100);
      ways.expect_same(worker_batch({{.count = 20, .first_slot = 280, .table = 0, .table_size = 20},
                                     {.count = 1, .first_slot = 5, .table = 20, .table_size = 1}}),
                       200);
      const AttentionWorkerFigures figures = (*workers)->figures();
      EXPECT_EQ(figures.workers, count);
      EXPECT_EQ(figures.starts, 0);
      EXPECT_EQ(figures.bytes, 40 * sizes.layout.block_bytes());
      EXPECT_GT(figures.sent_bytes, 4 * 300 * kWorkerDim * (2 * kWorkerKvHeads + kWorkerHeads));
      workers->reset();  // ends the connections
    }
  }
}

TEST(AttentionWorkersInThreads, ASecondEngineOrNoWorkerIsAnError) {
  AttentionWorkers::Sizes sizes{.layout = worker_layout("f32"),
                                .blocks = 4,
                                .places = {},
                                .heads = {{kWorkerHeads, kWorkerKvHeads, kWorkerDim}},
                                .tokens = 8,
                                .context = 64,
                                .isa = select_isa().value()};
  const auto none = AttentionWorkers::start({.hosts = {"127.0.0.1:1"}}, sizes);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("attention-worker --listen"), std::string::npos) << none.error().message;
  const auto many = AttentionWorkers::start({.count = 5}, sizes);
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("at most count=4"), std::string::npos) << many.error().message;
}

WorkerSetup small_setup() {
  return {.isa = isa_name(Isa::ref),
          .layout = worker_layout("f16"),
          .blocks = 4,
          .places = {},
          .tokens = 8,
          .context = 64,
          .q_width = kWorkerHeads * kWorkerDim,
          .kv_width = kWorkerKvHeads * kWorkerDim};
}

TEST(WorkerFrames, SetupsAreReadAsTheyAreWritten) {
  const WorkerSetup setup = small_setup();
  FrameWriter words;
  write_setup(setup, words);
  FrameReader reader(words.words());
  const auto read = read_setup(reader);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->isa, setup.isa);
  EXPECT_EQ(read->layout.format, setup.layout.format);
  EXPECT_EQ(read->layout.layers.size(), 2u);
  EXPECT_EQ(read->layout.layers[1].head_dim, kWorkerDim);
  EXPECT_EQ(read->pool_bytes(), setup.pool_bytes());
  EXPECT_EQ(read->q_width, setup.q_width);
}

// Every prefix of a frame, and every word of it replaced by an extreme one, is refused or harmless.
TEST(WorkerFrames, AnyNumberOutOfRangeIsRefused) {
  FrameWriter hello;
  write_setup(small_setup(), hello);
  for (size_t n = 0; n < hello.words().size(); ++n) {
    FrameReader reader(hello.words().first(n));
    EXPECT_FALSE(read_setup(reader).ok()) << n;
  }
  auto worker = AttentionWorker::create(small_setup(), -1, {});
  ASSERT_TRUE(worker.ok()) << worker.error().message;
  FrameWriter begin, attend_words;
  begin.add(8);
  begin.add_numbers(std::vector<int32_t>{0, 1, 2});
  begin.add_spans(std::vector<BatchSpan>{{.count = 7, .first_slot = 20, .table = 0, .table_size = 2},
                                         {.count = 1, .first_slot = 0, .table = 2, .table_size = 1}});
  for (const int64_t word : {1, 8, 8, 0, 0}) attend_words.add(word);
  attend_words.add_float(0);
  attend_words.add(0);
  attend_words.add_float(0);
  attend_words.add_spans(std::vector<BatchSpan>{{.count = 8, .first_slot = 20, .table = 0, .table_size = 2}});
  ASSERT_TRUE((*worker)->begin(0, FrameReader(begin.words())).ok());
  ASSERT_TRUE((*worker)->attend(0, FrameReader(attend_words.words())).ok());
  const auto damaged = [](std::span<const int64_t> words, const auto& run) {
    for (size_t n = 0; n < words.size(); ++n) {
      EXPECT_FALSE(run(FrameReader(words.first(n)))) << n;
      for (const int64_t extreme : {INT64_MIN, int64_t{-1}, int64_t{1} << 40, INT64_MAX}) {
        std::vector<int64_t> changed(words.begin(), words.end());
        changed[n] = extreme;
        run(FrameReader(changed));
      }
    }
    std::vector<int64_t> longer(words.begin(), words.end());
    longer.push_back(0);
    EXPECT_FALSE(run(FrameReader(longer)));
  };
  damaged(attend_words.words(), [&](FrameReader words) { return (*worker)->attend(0, words).ok(); });
  damaged(begin.words(), [&](FrameReader words) { return (*worker)->begin(0, words).ok(); });
  // A block that the pool does not have, and slots behind the table.
  for (const auto& [at, word] : {std::pair<size_t, int64_t>{2, 4}, {6, 25}, {6, 64}}) {
    std::vector<int64_t> changed(begin.words().begin(), begin.words().end());
    changed[at] = word;
    EXPECT_FALSE((*worker)->begin(0, FrameReader(changed)).ok()) << at << " " << word;
  }
}

TEST(WorkerFrames, AWorkerRefusesMoreMemoryThanItsLimit) {
  const auto worker = AttentionWorker::create(small_setup(), -1, {.memory_bytes = 1000});
  ASSERT_FALSE(worker.ok());
  EXPECT_EQ(worker.error().kind, ErrorKind::resource);
  EXPECT_NE(worker.error().message.find("the limit is"), std::string::npos);
}

// Bytes that are no frame end the connection with an error.
TEST(WorkerFrames, BytesThatAreNoFrameEndTheConnection) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::thread worker([&] {
    WorkerLink link(ends[1], 0);
    EXPECT_TRUE(serve_attention(link, -1, {}).ok());
  });
  const std::vector<char> noise(sizeof(FrameHeader), 'x');
  EXPECT_EQ(write(ends[0], noise.data(), noise.size()), std::ssize(noise));
  worker.join();
  char one;
  EXPECT_EQ(read(ends[0], &one, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace millrace
