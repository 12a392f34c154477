// WeightSource: makes a layer's weights ready when a pass needs them. One file each under weight_sources/ and one line
// in weight_sources/builtin.cc. With the first member, `resident`, all weights are in memory all the time, and there is
// no object: a pass pays one check per layer. Thread-safe: several engines may run passes of one model.
//
// A pass acquires a lease on each layer before the layer's first product, and on the experts that tokens chose. A lease
// may fail, if the weights cannot be read. The pass then ends at once and keeps the error, which code that runs passes
// takes afterwards (ModelRunner::take_failure()). The next pass may succeed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "base/result.h"
#include "offload/costs.h"
#include "tensor/mapped_file.h"

namespace millrace {

class BlockIo;
struct Format;
class NeuronMlp;

// Bytes [begin, begin + bytes) of a file: a matrix.
struct WeightRange {
  int64_t begin = 0;
  int64_t bytes = 0;
  std::string name = {};  // the tensor's name
};

// The weights that a pass reads together: those of a layer without its routed experts, or those of one expert.
struct WeightUnit {
  static constexpr int32_t kNoExpert = -1;

  int64_t layer = 0;
  int32_t expert = kNoExpert;
};

// Where a model's packed weights are in a packed cache.
struct WeightPlaces {
  struct Layer {
    std::vector<WeightRange> own;                   // all but the routed experts
    std::vector<std::vector<WeightRange>> experts;  // by expert
    std::vector<bool> cold;                         // by expert: it is packed in a cold format; empty: none is
    int64_t bytes() const;                          // bytes of all weights

    const std::vector<WeightRange>& ranges(int32_t expert) const {
      return expert == WeightUnit::kNoExpert ? own : experts[static_cast<size_t>(expert)];
    }
  };
  std::vector<Layer> layers;
  std::vector<WeightRange> others;  // tensors of no layer, such as the head, and those that rules keep
  OffloadModel model = {};          // the model's sizes
  OffloadCosts costs = {};          // set for members that plan with costs
  int64_t limit = INT64_MAX;        // the limit that the member's memory() receives

  const std::vector<WeightRange>& ranges(WeightUnit of) const {
    return layers[static_cast<size_t>(of.layer)].ranges(of.expert);
  }
  int64_t other_bytes() const;
  static int64_t bytes_of(const std::vector<WeightRange>& ranges);
  int64_t bytes() const;  // bytes of all weights
};

// A part of the file that is read and checked at once. Pieces begin and end at multiples of 4 KiB; each belongs to one
// matrix.
struct WeightPiece {
  int64_t begin = 0;  // in the file
  int64_t bytes = 0;
  uint64_t hash = 0;  // XXH3-64
};

// The packed cache that a source reads.
struct WeightFile {
  std::shared_ptr<const MappedFile> mapped;
  int64_t payload = 0;              // where the packed weights begin; a multiple of the huge page size
  std::vector<WeightPiece> pieces;  // the whole payload, ascending
  // Creates the object that reads the file; null: make_block_io(). Tests let reads fail here.
  std::function<std::unique_ptr<BlockIo>(int fd, int64_t depth)> io = nullptr;
};

// Counts since the start.
struct WeightFigures {
  std::string_view io;          // "io_uring", "pread"
  bool direct = false;          // reads bypass the system's page cache
  int64_t depth = 0;            // reads in flight, at most
  std::string_view pages = {};  // where units find pages: "moved" from others, or "allocated"
  int64_t bytes_read = 0;       // bytes read after the start
  int64_t wasted_bytes = 0;     // ... of which no weight was needed, because reads are whole pages
  int64_t reads = 0;            // units: layers or experts
  int64_t hits = 0;             // units that were in memory when a pass needed them
  int64_t misses = 0;           // units that a pass waited for
  int64_t wait_ns = 0;          // time that passes waited for units
  int64_t read_ns = 0;          // time during which at least one read was under way
  int64_t prefetched = 0;       // units that were read before a pass needed them
  int64_t prefetched_used = 0;  // prefetched units that a pass used before they left memory
  int64_t failed = 0;           // reads that failed
  int64_t neurons = 0;          // neurons of all tokens, in MLPs that are computed by neuron
  int64_t neurons_run = 0;      // ... that were computed
  int64_t experts = 0;          // experts that passes ran, each once for all tokens of a pass
  int64_t cold_experts = 0;     // ... that are packed in a cold format
  int64_t kept_bytes = 0;       // bytes that stay in memory
  int64_t cache_bytes = 0;      // bytes of the memory that the others share
};

class WeightSource;

// Keeps the weights of a layer, or of one of its experts, readable at their addresses while it lives.
class WeightLease {
 public:
  WeightLease() = default;  // for weights that are always in memory
  WeightLease(WeightLease&& other) noexcept : source_(std::exchange(other.source_, nullptr)), of_(other.of_) {}
  WeightLease& operator=(WeightLease&& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(of_, other.of_);
    return *this;
  }
  ~WeightLease();

 private:
  friend class WeightSource;
  WeightLease(WeightSource& source, WeightUnit of) : source_(&source), of_(of) {}

  WeightSource* source_ = nullptr;
  WeightUnit of_;
};

// The decisions of a source before it reads anything.
struct WeightPolicy {
  std::string text = {};    // for people, one line; "": there is nothing to say
  double keys_on_disk = 0;  // share of the layers whose keys and values are to be on the disk
  // The source with the options that change answers, NAME:key=value,...; "": answers are those of resident weights.
  std::string lossy = {};
  uint64_t lossy_hash = 0;  // hash of the choice that files make which those options name
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  const WeightPolicy& policy() const { return policy_; }
  void set_policy(WeightPolicy policy) { policy_ = std::move(policy); }
  // Returns when the weights can be read. They stay until the last lease on them ends. Errors: internal (the
  // file cannot be read, or is damaged).
  Result<WeightLease> acquire(WeightUnit of);
  // Acquires the first of a layer's chosen `experts`, ascending, as many as fit into memory together and at least one.
  // Returns their number, whose leases are appended to `leases`; the pass ends these before it acquires the remaining
  // experts. `guesses`: experts that the next layer will probably choose. Errors: as acquire(); `leases` are unchanged.
  Result<int64_t> acquire_experts(int64_t layer, std::span<const int32_t> experts, std::span<const int32_t> guesses,
                                  std::vector<WeightLease>& leases);
  // The number of the next layer's experts that passes are to guess for each token by running its router early; 0:
  // none. Then the weights of layers without their routed experts are always in memory.
  virtual int64_t router_guesses() const { return 0; }
  // Computes the dense MLPs neuron by neuron (models/neurons/neuron_mlp.h); null: passes multiply whole matrices.
  virtual NeuronMlp* neurons() const { return nullptr; }
  virtual std::optional<WeightFigures> figures() const { return {}; }  // {}: the source does not count
  // Asked after each pass: an error if leased weights were not those of the file, which no lease could notice.
  virtual Result<void> damage() const { return {}; }

 private:
  friend class WeightLease;
  // Called for every lease, on the thread that runs the pass. Several passes may hold leases on the same weights.
  virtual Result<void> begin(WeightUnit of) = 0;
  // Variant for acquire_experts(): begins the first experts and returns their number.
  virtual Result<int64_t> begin_experts(int64_t layer, std::span<const int32_t> experts,
                                        std::span<const int32_t> guesses);
  virtual void end(WeightUnit of) = 0;

  WeightPolicy policy_;
};

inline WeightLease::~WeightLease() {
  if (source_) source_->end(of_);
}

// A source, and the address of the packed weights' first byte; weights are readable there while they are leased.
struct PlacedWeights {
  std::unique_ptr<WeightSource> source;
  const uint8_t* packed = nullptr;
};

// The prediction for a source in a given memory: bytes and times.
struct WeightForecast {
  int64_t kept_bytes = 0;      // weights that stay in memory
  int64_t cache_bytes = 0;     // memory that the other weights share
  double decode_bytes = 0;     // bytes that one decode step of all streams reads
  double prefill_bytes = 0;    // bytes that one pass over tokens of a prompt reads
  double decode_seconds = 0;   // one decode step of all streams
  double prefill_seconds = 0;  // one pass over OffloadWork::chunk tokens of a prompt
  int64_t block = 0;           // streams of a step, if the source runs fewer than all together; 0: all
  std::string note = {};       // for people; "": there is nothing to say
  std::string options = {};    // options that the source needs for this work, "key=value,..."
};

// Experts that are packed in a format of fewer bits than the file's, for any contents of a cache.
struct ColdExperts {
  const Format* format = nullptr;       // null: no expert is cold
  std::vector<std::vector<bool>> cold;  // by layer and expert
};

struct WeightQuestion {
  const WeightPlaces& places;  // with the model's sizes, and costs
  const OptionValues& options;
  int64_t limit = 0;  // the bytes that weights may have
  OffloadWork work = {};
};

struct WeightSourceMember {
  // False: all weights are in memory; the other functions are null.
  bool from_file = false;
  // Every piece is checked when it is read, so that the start need not read the whole file.
  bool checks_reads = false;
  // Memory for weights at any time, at most. `limit`: the bytes that they may have. Errors: user (an option), resource
  // (the least that the source needs is more than the limit), unsupported.
  Result<int64_t> (*memory)(const WeightPlaces& places, const OptionValues& options, int64_t limit) = nullptr;
  // `memory`: what memory() returned. Errors: resource, storage, corrupt.
  Result<PlacedWeights> (*make)(WeightFile file, WeightPlaces places, const OptionValues& options,
                                int64_t memory) = nullptr;
  // WeightPlaces::costs are set before memory() and make() are called.
  bool uses_costs = false;
  // Chooses the experts to be packed in another format, before anything is packed. `experts`: the number of experts of
  // each layer. Null: none. Errors: user (an option), corrupt (a profile), unsupported.
  Result<ColdExperts> (*cold_experts)(std::span<const size_t> experts, const OptionValues& options) = nullptr;
  // Predicts the speed. Errors: as memory().
  Result<WeightForecast> (*predict)(const WeightQuestion& question) = nullptr;
};

const Registry<WeightSourceMember>& weight_sources();

}  // namespace millrace
