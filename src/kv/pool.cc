#include "kv/pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

namespace millrace {
namespace {

constexpr int64_t kIdsAimed = int64_t{1} << 20;  // contiguous pool: each id costs a few bytes here and in the engine
// A paged pool has small pages until it holds so much, which a TLB reaches: the planes of each head are apart, so that
// the first tokens would touch huge pages of nearly the whole pool.
constexpr int64_t kSmallPagesBytes = int64_t{8} << 20;
constexpr int64_t kMaxAddresses = int64_t{1} << 45;  // bytes of address space; a process has 2^47 or more

int64_t system_page_bytes() { return sysconf(_SC_PAGESIZE); }

Result<void> check_virtual(const KvLayout& layout) {
  if (!layout.encodes()) return {};
  return Error::unsupported(fmt::format(
      "KV pool: virtual is not for KV format {}, whose blocks are not whole pages; choose paged", layout.codec_name()));
}

Result<void> check_staged(const KvLayout& layout, int64_t blocks, const KvPoolOptions& options) {
  if (options.mode != KvPoolMode::paged || layout.divided() || layout.codec || layout.residual_below > 0)
    return Error::unsupported("KV tier disk: needs paged blocks of rows that all layers share");
  const int64_t multiple = staged_multiple(layout, system_page_bytes());
  if (options.resident < 0 || options.resident % multiple != 0 || blocks % multiple != 0)
    return Error::internal(fmt::format("KV cache: {} of {} blocks resident, which are not multiples of {}",
                                       options.resident, blocks, multiple));
  return {};
}

}  // namespace

// The raw rows that a query sees end with its own block; after them there is room for another block, so that chunks of
// up to a block, and drafted tokens, leave all the rows that the next query needs.
void KvLayout::encode_with(std::shared_ptr<const KvCodec> with, int64_t drafted) {
  codec = std::move(with);
  format = find_format("f16");
  const int64_t least = codec->block_multiple();
  block_tokens = (block_tokens + least - 1) / least * least;
  const int64_t ahead = std::max<int64_t>(1, (drafted + block_tokens - 1) / block_tokens);
  tail_tokens = (residual_blocks() + 1 + ahead) * block_tokens;
}

bool KvLayout::recurrent() const {
  return std::ranges::any_of(layers, [](const KvLayer& layer) { return layer.state_values > 0; });
}

void KvLayout::set_block_tokens(int64_t tokens) {
  block_tokens = tokens;
  for (KvLayout& group : windows) group.set_block_tokens(tokens);
}

Result<void> KvLayout::use_whole_pages(int64_t page_bytes) {
  MILLRACE_TRY_VOID(check_virtual(*this));
  set_block_tokens(page_block_tokens(page_bytes));
  return {};
}

bool KvLayout::encodes() const { return codec || std::ranges::any_of(windows, &KvLayout::encodes); }

bool KvLayout::prefixes_shared() const {
  return !recurrent() && !divided() && (!codec || codec->residual() == 0) &&
         std::ranges::all_of(windows, &KvLayout::prefixes_shared);
}

bool KvLayout::has_residuals() const {
  return residual_below > 0 || std::ranges::any_of(windows, &KvLayout::has_residuals);
}

std::string KvLayout::format_name() const {
  if (codec) return codec->text();
  if (residual_below > 0) return fmt::format("progressive:below={},format={}", residual_below, format->name);
  std::string name(format->name);
  if (values() != format) name += fmt::format(":values={}", values()->name);
  return name;
}

std::string KvLayout::codec_name() const {
  if (codec) return codec->text();
  for (const KvLayout& group : windows)
    if (group.codec) return group.codec->text() + " of layers with a window";
  return {};
}

int64_t KvLayout::tile_bytes(const KvLayer& layer, KvPart part) const {
  if (codec && !layer.side) return codec->tile_bytes(block_tokens, layer.head_dim);
  return block_tokens * (part == KvPart::keys ? format : values())->row_bytes(layer.head_dim);
}

int64_t KvLayout::block_bytes(const KvLayer& layer) const {
  const int64_t rows = tile_bytes(layer) + (layer.values_in_keys ? 0 : tile_bytes(layer, KvPart::values));
  return layer.kv_heads * rows * (stores_residuals(layer) ? 2 : 1);
}

int64_t KvLayout::block_bytes() const {
  if (divided()) return block_bytes(layers.front());
  int64_t bytes = 0;
  for (const auto& layer : layers) bytes += block_bytes(layer);
  return bytes;
}

int64_t KvLayout::bytes_per_token() const {
  int64_t bytes = block_bytes() * tables();
  for (const KvLayout& group : windows) bytes += group.block_bytes();
  return bytes / block_tokens;
}

int64_t KvLayout::heads_before(int64_t layer) const {
  if (layer < std::ssize(layers) && layers[static_cast<size_t>(layer)].side)
    layer = layers[static_cast<size_t>(layer)].side->layer;
  return std::accumulate(layers.begin(), layers.begin() + layer, int64_t{0},
                         [](int64_t sum, const KvLayer& one) { return sum + (one.side ? 0 : one.kv_heads); });
}

// A tail has a key and a value of 16 bits for each f32.
std::vector<int64_t> KvLayout::state_values() const {
  std::vector<int64_t> values;
  for (const auto& layer : layers)
    values.push_back(layer.state_values + (layer.side ? 0 : tail_tokens * layer.kv_heads * layer.head_dim));
  for (const KvLayout& group : windows) {
    const std::vector<int64_t> tails = group.state_values();
    for (size_t i = 0; i < tails.size(); ++i) values[i] += tails[i];
  }
  return values;
}

int64_t KvLayout::state_bytes() const { return StatePool::slot_bytes(state_values()); }

void KvLayout::use_layer_tables() {
  groups.clear();
  for (int64_t layer = 0; layer < std::ssize(layers); ++layer) groups.push_back({.layers = {layer}});
}

Result<void> KvLayout::use_per_head_tables() {
  MILLRACE_TRY_VOID(check_equal_heads());
  groups.clear();
  std::vector<KvLayer> heads;
  for (KvLayer layer : layers) {
    const int64_t count = std::exchange(layer.kv_heads, 1);
    for (int64_t head = 0; head < count; ++head) {
      groups.push_back({.layers = {std::ssize(heads)}, .head = head});
      heads.push_back(layer);
    }
  }
  layers = std::move(heads);
  return {};
}

Result<void> KvLayout::check_groups() const {
  if (encodes()) return Error::unsupported("KV cache: blocks by layer are not of formats that encode whole blocks");
  if (layers.empty() || !windows.empty()) return Error::internal("KV cache: blocks by layer, with groups of windows");
  if (layers.size() != groups.size()) return Error::internal("KV cache: a layer without some of its heads");
  return check_equal_heads();
}

Result<void> KvLayout::check_equal_heads() const {
  for (const KvLayer& layer : layers) {
    const KvLayer& first = layers.front();
    if (layer.state_values > 0 || layer.absent())
      return Error::unsupported("KV cache: blocks by layer need layers that all store keys and values");
    if (layer.kv_heads != first.kv_heads || layer.head_dim != first.head_dim ||
        layer.values_in_keys != first.values_in_keys)
      return Error::unsupported(
          "KV cache: blocks by layer need layers with equal heads, so that a block fits each of them");
  }
  return {};
}

Result<void> KvLayout::check() const {
  constexpr int64_t kMaxDim = 1 << 20;
  constexpr int64_t kMaxState = int64_t{1} << 32;
  if (!format) return Error::internal("KV cache: no format");
  if (block_tokens < 1 || block_tokens > kMaxBlockTokens) {
    return Error::user(
        fmt::format("KV block size: must be between 1 and {} tokens, got {}", kMaxBlockTokens, block_tokens));
  }
  if (codec && (tail_tokens % block_tokens != 0 || tail_tokens < (residual_blocks() + 2) * block_tokens))
    return Error::internal(fmt::format("KV format {}: a tail of {} tokens does not suit blocks of {}", format_name(),
                                       tail_tokens, block_tokens));
  if (codec)
    MILLRACE_TRY_VOID(codec->check_layers(std::ranges::count_if(layers, [](const KvLayer& l) { return !l.side; })));
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& layer = layers[i];
    if (codec && layer.state_values > 0)
      return Error::unsupported(
          fmt::format("KV format {}: not for a model with recurrent layers; choose f16", format_name()));
    if (codec && layer.values_in_keys && !layer.side)
      return Error::unsupported(fmt::format(
          "KV format {}: not for a model with latent attention, whose values are parts of its keys; choose f16",
          format_name()));
    if (values() != format && layer.head_dim > kMaxMixedHeadDim)
      return Error::unsupported(fmt::format(
          "KV format {}: keys and values of different formats need heads of at most {} dims, the model has {}; choose "
          "one format",
          format_name(), kMaxMixedHeadDim, layer.head_dim));
    if (values() != format && layer.values_in_keys)
      return Error::unsupported(fmt::format(
          "KV format {}: values of latent attention are parts of its keys, so they have one format", format_name()));
    if (layer.absent() || layer.simulated) continue;
    if (layer.state_values > kMaxState)
      return Error::user(fmt::format("KV cache: layer {} has a state of {} values", i, layer.state_values));
    if (layer.state_values > 0 && layer.kv_heads == 0) continue;
    if (layer.kv_heads < 1 || layer.head_dim < 1 || layer.kv_heads > kMaxDim || layer.head_dim > kMaxDim) {
      return Error::user(
          fmt::format("KV cache: layer {} has {} heads of {} values", i, layer.kv_heads, layer.head_dim));
    }
    if (codec && !layer.side) MILLRACE_TRY_VOID(codec->check(layer.head_dim));
    if (stores_residuals(layer) && layer.values_in_keys)
      return Error::unsupported(fmt::format(
          "KV format {}: not for a model with latent attention, whose values are parts of its keys; choose q8_0",
          format_name()));
    if (stores_residuals(layer) && layer.head_dim > kMaxResidualValues)
      return Error::unsupported(fmt::format("KV format {}: heads have at most {} dims, the model has {}; choose q8_0",
                                            format_name(), kMaxResidualValues, layer.head_dim));
    for (const Format* one : {format, values()}) {
      if (layer.head_dim % one->block_values == 0) continue;
      return Error::unsupported(
          fmt::format("KV format {}: needs a head size that is a multiple of {}, the model has {}; "
                      "choose f16, bf16 or f32",
                      one->name, one->block_values, layer.head_dim));
    }
  }
  if (divided()) MILLRACE_TRY_VOID(check_groups());
  for (const KvLayout& group : windows) MILLRACE_TRY_VOID(group.check());
  return {};
}

int64_t KvLayout::page_block_tokens(int64_t page_bytes) const {
  int64_t least = 1;
  for (const auto& layer : layers) {
    for (const Format* one : {format, values()}) {
      const int64_t row = one->row_bytes(layer.head_dim);
      least = std::lcm(least, page_bytes / std::gcd(page_bytes, row));
    }
  }
  return (block_tokens + least - 1) / least * least;
}

Result<KvPoolMode> find_kv_pool_mode(const std::string& name) {
  if (name == "paged") return KvPoolMode::paged;
  if (name == "virtual") return KvPoolMode::virtual_ranges;
  return Error::user(fmt::format("KV pool: 'paged' or 'virtual', got '{}'", name));
}

// As many ranges as there may be blocks that outlive their stream, as long as that is cheap; at least twice the blocks,
// so that a free id can always be found.
int64_t kv_pool_ids(const KvLayout& layout, int64_t blocks, const KvPoolOptions& options) {
  const int64_t range = std::max<int64_t>(1, (options.longest + layout.block_tokens - 1) / layout.block_tokens);
  const int64_t aimed = std::min(blocks + options.streams + 1, std::max<int64_t>(1, kIdsAimed / range));
  return range * std::max({aimed, 2 * options.streams + 2, (2 * blocks + range - 1) / range});
}

// No set of streams that fits into the first group needs more blocks than it has, unless they drop tokens of that group
// alone; streams whose blocks of the first group are in a tier need some in addition. Beyond what the streams need at
// most there is room for prefixes.
int64_t window_group_blocks(const KvLayout& group, int64_t blocks, const KvPoolOptions& options) {
  const int64_t each = (group.most_held + group.block_tokens - 1) / group.block_tokens;
  if (options.evicts) return (options.streams + 1 + options.swapped) * each;
  return std::min((options.streams + 1) * each, blocks) + std::min(options.swapped * each, options.swapped_blocks);
}

int64_t kv_pool_bytes(const KvLayout& layout, int64_t blocks, const KvPoolOptions& options) {
  int64_t bytes = staged_bytes(layout, blocks, options.resident);
  for (const KvLayout& group : layout.windows)
    bytes += window_group_blocks(group, blocks, options) * group.block_bytes();
  return bytes;
}

Result<KvPool> KvPool::create(KvLayout layout, int64_t blocks, const KvPoolOptions& options) {
  MILLRACE_TRY_VOID(layout.check());
  if (blocks < 1) return Error::user(fmt::format("KV cache: needs at least one block, got {}", blocks));
  if (blocks > INT32_MAX)
    return Error::resource(
        fmt::format("KV cache: {} blocks are more than can be addressed; lower the KV tokens", blocks));
  int64_t per_block = layout.block_bytes();
  if (per_block > 0 && blocks > INT64_MAX / per_block) {
    return Error::resource(fmt::format(
        "KV cache: {} blocks of {} bytes do not fit; lower the context or the number of streams", blocks, per_block));
  }
  KvPool pool;
  pool.is_virtual_ = options.mode == KvPoolMode::virtual_ranges;
  pool.total_blocks_ = blocks;
  pool.evicts_ = options.evicts;
  int64_t ids = blocks;
  if (pool.is_virtual_) {
    MILLRACE_TRY_VOID(check_virtual(layout));
    if (layout.divided()) return Error::unsupported("KV pool: virtual is not for blocks by layer; choose paged");
    const int64_t page = system_page_bytes();
    if (layout.page_block_tokens(page) != layout.block_tokens)
      return Error::user(fmt::format("KV pool: a block of a virtual pool is whole pages; {} tokens are not, {} are",
                                     layout.block_tokens, layout.page_block_tokens(page)));
    ids = kv_pool_ids(layout, blocks, options);
    if (ids > INT32_MAX || ids > kMaxAddresses / std::max<int64_t>(1, per_block))
      return Error::resource(
          fmt::format("KV cache: {} ids of {} bytes are more addresses than a process has; lower the context or the "
                      "number of streams",
                      ids, per_block));
    pool.huge_pages_ = layout.page_block_tokens(kHugePageBytes) == layout.block_tokens;
    const int64_t range = std::max<int64_t>(1, (options.longest + layout.block_tokens - 1) / layout.block_tokens);
    pool.ranges_ = VirtualRanges(blocks, range, ids / range);
  }
  const bool staged = options.resident < blocks;
  if (staged) MILLRACE_TRY_VOID(check_staged(layout, blocks, options));
  if (options.states != kStatesElsewhere) {
    MILLRACE_TRY(pool.states_, StatePool::create(layout.state_values(), options.states, options.copies, options.marks));
  }
  for (const auto& layer : layout.layers) {
    const bool rows = layer.kv_heads > 0;  // not recurrent, and not in another group
    const KvPart part = layer.values_in_keys ? KvPart::keys : KvPart::values;
    pool.row_bytes_.push_back(rows ? layout.format->row_bytes(layer.head_dim) : 0);
    pool.value_row_bytes_.push_back(
        rows ? (layer.values_in_keys ? layout.format : layout.values())->row_bytes(layer.head_dim) : 0);
    pool.tile_bytes_.push_back(rows ? layout.tile_bytes(layer) : 0);
    pool.value_tile_bytes_.push_back(rows ? layout.tile_bytes(layer, part) : 0);
    pool.residual_bytes_.push_back(rows && layout.stores_residuals(layer) ? ids * layout.block_bytes(layer) / 2 : 0);
    pool.buffers_.emplace_back();
    const bool has_own = !layout.divided() || pool.buffers_.size() == 1;
    const int64_t bytes = rows && has_own ? ids * layout.block_bytes(layer) : 0;
    if (bytes == 0) continue;
    MILLRACE_TRY(pool.buffers_.back(), pool.is_virtual_ || staged
                                           ? AlignedBuffer::reserve(bytes, "KV cache", pool.huge_pages_)
                                           : AlignedBuffer::allocate(bytes, "KV cache"));
    if (!pool.is_virtual_) pool.buffers_.back().use_small_pages();
  }
  for (size_t i = 0; i < layout.layers.size(); ++i)
    pool.first_.push_back(pool.buffers_[layout.divided() ? 0 : i].data());
  if (staged) {
    MILLRACE_TRY(pool.staged_, map_staged_layers(layout, blocks, options.resident, pool.first_));
  }
  if (layout.has_residuals()) pool.residual_reads_ = std::make_shared<ResidualReads>();
  MILLRACE_TRY_VOID(pool.add_groups(layout, options));
  pool.layout_ = std::move(layout);
  pool.references_.assign(static_cast<size_t>(ids), 0);
  if (pool.is_virtual_) return pool;
  if (!staged) pool.small_blocks_ = kSmallPagesBytes / std::max<int64_t>(1, per_block);
  pool.free_.resize(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) pool.free_[i] = static_cast<BlockId>(blocks - 1 - i);
  return pool;
}

Result<void> KvPool::add_groups(const KvLayout& layout, const KvPoolOptions& options) {
  if (layout.windows.empty() && !layout.divided()) return {};
  group_of_.assign(layout.layers.size(), 0);
  for (size_t g = 0; g < layout.groups.size(); ++g)
    for (const int64_t layer : layout.groups[g].layers) group_of_[static_cast<size_t>(layer)] = static_cast<int32_t>(g);
  for (const KvLayout& group : layout.windows) {
    MILLRACE_TRY(KvPool pool,
                 create(group, window_group_blocks(group, total_blocks_, options), {.states = kStatesElsewhere}));
    pool.residual_reads_ = residual_reads_;
    windows_.push_back(std::move(pool));
    for (size_t i = 0; i < group.layers.size(); ++i)
      if (!group.layers[i].absent()) group_of_[i] = static_cast<int32_t>(windows_.size());
  }
  return {};
}

int64_t KvPool::bytes() const {
  int64_t bytes = staged_bytes(layout_, total_blocks(), staged_.resident) + states_.bytes();
  for (const KvPool& group : windows_) bytes += group.bytes();
  return bytes;
}

Result<BlockId> KvPool::allocate() {
  KvRange none;
  auto block = allocate(none);
  close(none);
  return block;
}

Result<BlockId> KvPool::allocate(KvRange& range) {
  if (free_blocks() == 0) return Error::resource("KV cache: no free block");
  BlockId block;
  if (is_virtual_) {
    block = ranges_.take(range, [this](BlockId first, int64_t count) { give_back(first, count); });
  } else {
    block = free_.back();
    free_.pop_back();
    if (block >= small_blocks_) use_huge_pages();
  }
  references_[block] = 1;
  return block;
}

// Once.
void KvPool::use_huge_pages() {
  small_blocks_ = INT64_MAX;
  for (AlignedBuffer& buffer : buffers_) buffer.use_huge_pages();
}

void KvPool::release(BlockId block) {
  assert(references_[block] > 0);
  if (--references_[block] > 0) return;
  if (is_virtual_)
    ranges_.release(block);
  else
    free_.push_back(block);
}

// Adjacent blocks are contiguous within a head, so each plane needs one call.
void KvPool::give_back(BlockId first, int64_t count) {
  for (size_t layer = 0; layer < buffers_.size(); ++layer) {
    int64_t plane = 0;
    for (int64_t kind = 0; kind < planes(static_cast<int64_t>(layer)); ++kind) {
      const int64_t tile = plane_tile_bytes(static_cast<int64_t>(layer), kind), heads = layout_.layers[layer].kv_heads;
      for (int64_t head = 0; head < heads; ++head)
        buffers_[layer].give_back(plane + (head * ids() + first) * tile, count * tile);
      plane += heads * ids() * tile;
    }
  }
}

Result<void> KvPool::check() const {
  const int64_t held = std::ranges::count_if(references_, [](int32_t count) { return count > 0; });
  if (held + free_blocks() != total_blocks_)
    return Error::internal(fmt::format("KV blocks: {} held + {} free != {}", held, free_blocks(), total_blocks_));
  return is_virtual_ ? ranges_.check() : Result<void>();
}

void KvPool::copy(BlockId from, BlockId to) {
  if (copier_) return copier_(from, to);
  for (size_t layer = 0; layer < (divided() ? 1 : buffers_.size()); ++layer) {
    const auto index = static_cast<int64_t>(layer);
    for (int64_t kind = 0; kind < planes(index); ++kind)
      for (int64_t head = 0; head < layout_.layers[layer].kv_heads; ++head)
        std::memcpy(plane(index, to, kind, head), plane(index, from, kind, head),
                    static_cast<size_t>(plane_tile_bytes(index, kind)));
  }
}

}  // namespace millrace
