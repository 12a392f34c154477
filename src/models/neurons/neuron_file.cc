#include "models/neurons/neuron_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/pending_file.h"
#include "kv/tiers/block_io.h"
#include "models/neurons/neuron_tensors.h"

namespace millrace {
namespace {

constexpr char kNeuronMagic[8] = {'M', 'I', 'L', 'L', 'N', 'E', 'U', 'R'};  // frozen
constexpr int64_t kMostLayers = 1 << 16, kMostValues = 1 << 24;

struct NeuronPrelude {  // frozen
  char magic[8];
  uint32_t version;
  uint32_t layers;
  uint32_t width, hidden, rank, gated;
  char gate[16], up[16], down[16];  // names of formats, padded with zeros
  uint64_t identity;                // of the model
  uint64_t tokens;
  uint64_t bundles_at;  // a multiple of 4 KiB
  uint64_t file_bytes;
  uint64_t tables_hash;  // XXH3-64
  uint64_t hash;         // XXH3-64 of the prelude, this field taken as 0
};
static_assert(sizeof(NeuronPrelude) == 128);

int64_t padded_part(int64_t bytes) { return (bytes + 3) / 4 * 4; }
int64_t whole_pages_of(int64_t bytes) { return (bytes + kNeuronPage - 1) / kNeuronPage * kNeuronPage; }

int64_t bundles_begin(const NeuronShape& shape) {
  return whole_pages_of(kNeuronPage + shape.layers * shape.table_bytes());
}

uint64_t prelude_hash(NeuronPrelude prelude) {
  prelude.hash = 0;
  return XXH3_64bits(&prelude, sizeof prelude);
}

void put_name(char (&to)[16], const Format* format) {
  if (format) std::memcpy(to, format->name.data(), std::min(format->name.size(), sizeof to - 1));
}
const Format* get_name(const char (&from)[16]) {
  return find_format(std::string_view(from, strnlen(from, sizeof from)));
}

bool takes_rows(const Format* format, int64_t cols) {
  return format && cols % format->block_values == 0 && format->matrix_limit == 0;
}
bool takes_columns(const Format* format) {
  return format && (format->name == "f32" || format->name == "f16" || format->name == "q8_0");
}

// The shape of a prelude whose hash is right. All its sizes are small enough that no product of them overflows.
Result<NeuronShape> shape_of(const NeuronPrelude& prelude, const std::string& path) {
  NeuronShape shape{.layers = prelude.layers,
                    .width = prelude.width,
                    .hidden = prelude.hidden,
                    .rank = prelude.rank,
                    .gated = prelude.gated == 1,
                    .gate = prelude.gated == 1 ? get_name(prelude.gate) : nullptr,
                    .up = get_name(prelude.up),
                    .down = get_name(prelude.down)};
  const bool sizes = shape.layers >= 1 && shape.layers <= kMostLayers && shape.width >= 1 &&
                     shape.width <= kMostValues && shape.hidden >= 1 && shape.hidden <= kMostValues &&
                     shape.rank <= kMaxPredictorRank && prelude.gated <= 1;
  if (!sizes || !takes_rows(shape.up, shape.width) || (shape.gated && !takes_rows(shape.gate, shape.width)) ||
      !takes_columns(shape.down) || shape.hidden % shape.down->block_values != 0)
    return Error::corrupt(fmt::format("{}: the header has sizes or formats that no model has", path));
  return shape;
}

}  // namespace

uint32_t bundle_hash(const uint8_t* data, int64_t bytes) {
  return static_cast<uint32_t>(XXH3_64bits(data, static_cast<size_t>(bytes)));
}

bool NeuronShape::down_has_scales() const { return down->block_values > 1; }
int64_t NeuronShape::gate_bytes() const { return gated ? gate->row_bytes(width) : 0; }
int64_t NeuronShape::up_at() const { return padded_part(gate_bytes()); }
int64_t NeuronShape::up_bytes() const { return up->row_bytes(width); }
int64_t NeuronShape::down_at() const { return up_at() + padded_part(up_bytes()); }
int64_t NeuronShape::bundle_bytes() const {
  return down_at() + padded_part(down_has_scales() ? width : down->row_bytes(width));
}
int64_t NeuronShape::layer_bytes() const { return whole_pages_of(hidden * bundle_bytes()); }
int64_t NeuronShape::table_bytes() const {
  const int64_t scales = down_has_scales() ? hidden / down->block_values * width * 4 : 0;
  return 16 * hidden + scales + padded_part(2 * rank * (width + hidden));
}

NeuronFile::NeuronFile(NeuronFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      shape_(other.shape_),
      tokens_(other.tokens_),
      bundles_at_(other.bundles_at_),
      identity_(other.identity_),
      tables_hash_(other.tables_hash_),
      tables_(std::move(other.tables_)) {}

NeuronFile::~NeuronFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<NeuronFile> NeuronFile::open(const std::string& path) {
  NeuronFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0)
    return Error::user(
        fmt::format("{}: cannot open: {}; millrace offload-train makes it from the model", path, std::strerror(errno)));
  NeuronPrelude prelude{};
  if (!move_bytes(file.fd_, {.data = reinterpret_cast<uint8_t*>(&prelude), .bytes = sizeof prelude}) ||
      std::memcmp(prelude.magic, kNeuronMagic, sizeof kNeuronMagic) != 0)
    return Error::corrupt(fmt::format("{}: is not a neuron file; millrace offload-train makes one", path));
  if (prelude.version != kNeuronFileVersion)
    return Error::corrupt(
        fmt::format("{}: has version {}, this build reads {}; make it again with millrace "
                    "offload-train",
                    path, prelude.version, kNeuronFileVersion));
  if (prelude_hash(prelude) != prelude.hash) return Error::corrupt(fmt::format("{}: the header is damaged", path));
  MILLRACE_TRY(file.shape_, shape_of(prelude, path));
  const NeuronShape& shape = file.shape_;
  // 128 bits: the sizes are those of the file, not yet of anything in memory.
  const auto bundles = static_cast<unsigned __int128>(shape.layers) * static_cast<uint64_t>(shape.layer_bytes());
  const auto tables = static_cast<unsigned __int128>(shape.layers) * static_cast<uint64_t>(shape.table_bytes());
  const int64_t size = ::lseek(file.fd_, 0, SEEK_END);
  if (size < 0 || prelude.file_bytes != static_cast<uint64_t>(size) || tables > prelude.file_bytes ||
      bundles > prelude.file_bytes || prelude.bundles_at != static_cast<uint64_t>(bundles_begin(shape)) ||
      bundles + prelude.bundles_at != prelude.file_bytes)
    return Error::corrupt(
        fmt::format("{}: has {} bytes, its header says {}; it was cut off or changed", path, size, prelude.file_bytes));
  file.tokens_ = static_cast<int64_t>(std::min<uint64_t>(prelude.tokens, INT64_MAX));
  file.bundles_at_ = static_cast<int64_t>(prelude.bundles_at);
  file.identity_ = prelude.identity;
  file.tables_hash_ = prelude.tables_hash;
  MILLRACE_TRY_VOID(file.read_tables(static_cast<int64_t>(tables)));
  return file;
}

Result<void> NeuronFile::read_tables(int64_t bytes) {
  MILLRACE_TRY(tables_, AlignedBuffer::allocate(bytes, "tables of neurons"));
  if (!move_bytes(fd_, {.at = kNeuronPage, .data = tables_.data(), .bytes = bytes}))
    return Error::corrupt(fmt::format("{}: the tables cannot be read", path_));
  if (XXH3_64bits(tables_.data(), static_cast<size_t>(bytes)) != tables_hash_)
    return Error::corrupt(fmt::format("{}: the tables are damaged; make it again with millrace offload-train", path_));
  return {};
}

NeuronTables NeuronFile::tables(int64_t layer) const {
  const uint8_t* at = tables_.data() + layer * shape_.table_bytes();
  const auto hidden = static_cast<size_t>(shape_.hidden);
  NeuronTables out;
  const auto take = [&]<typename T>(std::span<const T>& to, size_t count) {
    to = {reinterpret_cast<const T*>(at), count};
    at += count * sizeof(T);
  };
  take(out.thresholds, hidden);
  take(out.active, hidden);
  take(out.gate_hashes, hidden);
  take(out.hashes, hidden);
  if (shape_.down_has_scales())
    take(out.scales, hidden / static_cast<size_t>(shape_.down->block_values) * static_cast<size_t>(shape_.width));
  if (shape_.rank == 0) return out;
  out.a = at;
  out.b = at + 2 * shape_.rank * shape_.width;
  return out;
}

Result<void> NeuronFile::check_model(const ModelFiles& files, const ArchSpec& spec) const {
  MILLRACE_TRY(const NeuronShape own, neuron_shape(files, spec));
  const bool alike = own.layers == shape_.layers && own.width == shape_.width && own.hidden == shape_.hidden &&
                     own.gated == shape_.gated && own.gate == shape_.gate && own.up == shape_.up &&
                     own.down == shape_.down;
  if (!alike || neuron_identity(files, own) != identity_)
    return Error::user(fmt::format("{}: was made from another model than {}; make it again with millrace offload-train",
                                   path_, files.path));
  return {};
}

namespace {

struct BundleHashes {
  std::vector<uint32_t> gate, others;
};

// Writes the bundles of a layer and appends their hashes. Returns false if they cannot be written.
bool write_bundles(PendingFile& file, const NeuronMatrices& tensors, const NeuronShape& shape, int64_t at,
                   BundleHashes& hashes) {
  const int64_t block = 32, bytes = shape.bundle_bytes();
  std::vector<uint8_t> bundles(static_cast<size_t>(block * bytes));
  for (int64_t first = 0; first < shape.hidden; first += block) {
    const int64_t count = std::min(block, shape.hidden - first);
    std::ranges::fill(bundles, uint8_t{0});
    for (int64_t i = 0; i < count; ++i) {
      uint8_t* const to = bundles.data() + i * bytes;
      if (shape.gated)
        std::memcpy(to, tensors.gate + (first + i) * shape.gate_bytes(), static_cast<size_t>(shape.gate_bytes()));
      std::memcpy(to + shape.up_at(), tensors.up + (first + i) * shape.up_bytes(),
                  static_cast<size_t>(shape.up_bytes()));
    }
    copy_columns(tensors, shape, first, count, bundles.data() + shape.down_at(), bytes);
    for (int64_t i = 0; i < count; ++i) {
      hashes.gate.push_back(bundle_hash(bundles.data() + i * bytes, shape.up_at()));
      hashes.others.push_back(bundle_hash(bundles.data() + i * bytes + shape.up_at(), bytes - shape.up_at()));
    }
    if (!file.write(bundles.data(), count * bytes, at + first * bytes)) return false;
  }
  const std::vector<uint8_t> zeros(static_cast<size_t>(shape.layer_bytes() - shape.hidden * bytes));
  return zeros.empty() || file.write(zeros.data(), std::ssize(zeros), at + shape.hidden * bytes);
}

template <typename T>
void append(std::string& to, std::span<const T> values) {
  to.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void append_f16(std::string& to, const std::vector<float>& values) {
  std::vector<uint8_t> rounded(values.size() * 2);
  find_format("f16")->encode(values.data(), rounded.data(), std::ssize(values));
  append(to, std::span<const uint8_t>(rounded));
}

}  // namespace

Result<void> write_neuron_file(const std::string& path, const ModelFiles& files, const ArchSpec& spec,
                               std::span<const NeuronProfile> layers, int64_t tokens) {
  MILLRACE_TRY(NeuronShape shape, neuron_shape(files, spec));
  if (!layers.front().a.empty()) shape.rank = std::ssize(layers.front().a) / shape.width;
  const auto failed = [&] {
    return Error::resource(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  };
  PendingFile file(path);
  if (!file.created()) return failed();
  std::string tables;
  const int64_t begin = bundles_begin(shape);
  for (int64_t l = 0; l < shape.layers; ++l) {
    const NeuronProfile& profile = layers[static_cast<size_t>(l)];
    const NeuronMatrices tensors = neuron_matrices(files, shape, l);
    BundleHashes hashes;
    if (!write_bundles(file, tensors, shape, begin + l * shape.layer_bytes(), hashes)) return failed();
    const size_t end = tables.size() + static_cast<size_t>(shape.table_bytes());
    append(tables, std::span(profile.thresholds));
    append(tables, std::span(profile.active));
    append(tables, std::span<const uint32_t>(hashes.gate));
    append(tables, std::span<const uint32_t>(hashes.others));
    append(tables, std::span<const float>(column_scales(tensors, shape)));
    append_f16(tables, profile.a);
    append_f16(tables, profile.b);
    tables.resize(end);  // padding
  }
  NeuronPrelude prelude{};
  std::memcpy(prelude.magic, kNeuronMagic, sizeof kNeuronMagic);
  prelude.version = kNeuronFileVersion;
  prelude.layers = static_cast<uint32_t>(shape.layers);
  prelude.width = static_cast<uint32_t>(shape.width);
  prelude.hidden = static_cast<uint32_t>(shape.hidden);
  prelude.rank = static_cast<uint32_t>(shape.rank);
  prelude.gated = shape.gated ? 1 : 0;
  put_name(prelude.gate, shape.gate);
  put_name(prelude.up, shape.up);
  put_name(prelude.down, shape.down);
  prelude.identity = neuron_identity(files, shape);
  prelude.tokens = static_cast<uint64_t>(tokens);
  prelude.bundles_at = static_cast<uint64_t>(begin);
  prelude.file_bytes = static_cast<uint64_t>(begin + shape.layers * shape.layer_bytes());
  prelude.tables_hash = XXH3_64bits(tables.data(), tables.size());
  prelude.hash = prelude_hash(prelude);
  std::string head(reinterpret_cast<const char*>(&prelude), sizeof prelude);
  head.resize(static_cast<size_t>(kNeuronPage));
  head += tables;
  head.resize(static_cast<size_t>(begin));
  if (!file.write(head.data(), std::ssize(head), 0) || !file.commit()) return failed();
  return {};
}

}  // namespace millrace
