#include "kv/block_run_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/pending_file.h"
#include "kv/tiers/block_runs.h"

namespace millrace {
namespace {

constexpr char kRunMagic[8] = {'M', 'I', 'L', 'L', 'K', 'V', 'R', 'N'};  // frozen

struct RunHeader {  // frozen
  char magic[8];
  uint32_t version;
  uint32_t identity_bytes;
  uint32_t layout_bytes;
  uint32_t layer_begin, layer_end;
  uint32_t block_tokens;
  uint64_t tokens;
  uint64_t payload_bytes;
  uint64_t payload_hash;  // XXH3-64
  uint64_t hash;          // XXH3-64 of all bytes before the payload, this field taken as 0
};
static_assert(sizeof(RunHeader) == 64);

int64_t layer_block_bytes(const KvPool& pool, int64_t layer) {
  return pool.layout().block_bytes(pool.layout().layers[static_cast<size_t>(layer)]);
}

int64_t run_state_bytes(const KvPool& pool) { return pool.layout().recurrent() ? pool.states().slot_bytes() : 0; }

int64_t run_bytes(const KvPool& pool, int64_t layer_begin, int64_t layer_end, int64_t blocks) {
  int64_t bytes = 0;
  for (int64_t layer = layer_begin; layer < layer_end; ++layer) bytes += blocks * layer_block_bytes(pool, layer);
  return bytes + run_state_bytes(pool);
}

std::string layout_text(const KvPool& pool, int64_t layer_begin, int64_t layer_end) {
  const KvLayout& layout = pool.layout();
  std::string out = fmt::format("{}, blocks of {} tokens, layers {} to {} of {}\n", layout.format_name(),
                                layout.block_tokens, layer_begin, layer_end, layout.layers.size());
  for (int64_t layer = layer_begin; layer < layer_end; ++layer) {
    const KvLayer& one = layout.layers[static_cast<size_t>(layer)];
    out += fmt::format("layer {}: {} heads of {}, {} bytes a {}{}\n", layer, one.kv_heads, one.head_dim,
                       layout.codec ? pool.tile_bytes(layer) : pool.row_bytes(layer), layout.codec ? "tile" : "row",
                       one.values_in_keys ? ", values in keys" : "");
    if (one.state_values > 0) out += fmt::format("layer {}: a state of {} values\n", layer, one.state_values);
  }
  return out;
}

// The first line in which they differ.
std::string difference(std::string_view found, std::string_view wanted) {
  const auto line = [](std::string_view text, size_t at) {
    const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return text.substr(begin, std::min(text.find('\n', begin), begin + 200) - begin);
  };
  const auto [a, b] = std::ranges::mismatch(found, wanted);
  return fmt::format("it has '{}', here is '{}'", line(found, static_cast<size_t>(a - found.begin())),
                     line(wanted, static_cast<size_t>(b - wanted.begin())));
}

Error cannot_write(const std::string& path) {
  return Error::resource(fmt::format("{}: cannot write keys and values: {}", path, std::strerror(errno)));
}

Result<void> check_run(const KvPool& pool, std::span<const BlockId> blocks, const BlockRun& run) {
  const KvLayout& layout = pool.layout();
  if (layout.codec && layout.codec->residual() > 0)
    return Error::unsupported(
        fmt::format("keys and values: KV format {} keeps raw rows in addition to its blocks; use residual=0",
                    layout.format_name()));
  if (pool.divided())
    return Error::unsupported(
        "keys and values: every layer has its own blocks with this evictor; start the engine without it");
  if (pool.groups() > 1 && pool.evicts())
    return Error::unsupported(
        "keys and values: with an evictor, layers with a window have blocks of their own; start the engine without "
        "one");
  if (pool.groups() > 1)
    return Error::unsupported(
        "keys and values: layers with a window keep only the newest blocks; keep all of them (--keep-window-keys)");
  if (layout.recurrent() && run.layer_end - run.layer_begin < std::ssize(layout.layers))
    return Error::unsupported("keys and values: of a model with recurrent layers only all layers can be saved");
  if (run.layer_begin < 0 || run.layer_begin >= run.layer_end || run.layer_end > std::ssize(layout.layers))
    return Error::user(fmt::format("keys and values: layers {} to {} are not a range of the model's {}",
                                   run.layer_begin, run.layer_end, layout.layers.size()));
  if (blocks.empty() || std::ssize(run.tokens) != std::ssize(blocks) * layout.block_tokens)
    return Error::user(fmt::format("keys and values: {} tokens are not {} whole blocks of {}", run.tokens.size(),
                                   blocks.size(), layout.block_tokens));
  if (std::ssize(run.state) * static_cast<int64_t>(sizeof(float)) != run_state_bytes(pool))
    return Error::user(fmt::format("keys and values: the states of the recurrent layers have {} bytes, got {}",
                                   run_state_bytes(pool), run.state.size() * sizeof(float)));
  return {};
}

}  // namespace

Result<void> export_blocks(KvPool& pool, std::span<const BlockId> blocks, const BlockRun& run,
                           const std::string& path) {
  MILLRACE_TRY_VOID(check_run(pool, blocks, run));
  const std::string layout = layout_text(pool, run.layer_begin, run.layer_end);
  RunHeader header = {};
  std::memcpy(header.magic, kRunMagic, sizeof kRunMagic);
  header.version = kBlockRunVersion;
  header.identity_bytes = static_cast<uint32_t>(run.identity.size());
  header.layout_bytes = static_cast<uint32_t>(layout.size());
  header.layer_begin = static_cast<uint32_t>(run.layer_begin);
  header.layer_end = static_cast<uint32_t>(run.layer_end);
  header.block_tokens = static_cast<uint32_t>(pool.layout().block_tokens);
  header.tokens = run.tokens.size();
  header.payload_bytes = static_cast<uint64_t>(run_bytes(pool, run.layer_begin, run.layer_end, std::ssize(blocks)));
  std::string head(sizeof header, '\0');
  head += run.identity + layout;
  head.append(reinterpret_cast<const char*>(run.tokens.data()), run.tokens.size() * sizeof(TokenId));
  PendingFile out(path);
  if (!out.created()) return cannot_write(path);
  int64_t at = std::ssize(head);
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  bool written = true;
  std::vector<uint8_t> bytes;
  for (int64_t layer = run.layer_begin; layer < run.layer_end && written; ++layer) {
    bytes.resize(static_cast<size_t>(layer_block_bytes(pool, layer)));
    for (const BlockId block : blocks) {
      copy_out(pool, layer, block, bytes.data());
      XXH3_64bits_update(state, bytes.data(), bytes.size());
      written = written && out.write(bytes.data(), std::ssize(bytes), at);
      at += std::ssize(bytes);
    }
  }
  const int64_t own_state = run_state_bytes(pool);
  XXH3_64bits_update(state, run.state.data(), static_cast<size_t>(own_state));
  written = written && out.write(reinterpret_cast<const uint8_t*>(run.state.data()), own_state, at);
  header.payload_hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  std::memcpy(head.data(), &header, sizeof header);
  header.hash = XXH3_64bits(head.data(), head.size());
  std::memcpy(head.data(), &header, sizeof header);
  if (!written || !out.write(head.data(), std::ssize(head), 0) || !out.commit()) return cannot_write(path);
  return {};
}

Result<BlockRunFile> BlockRunFile::open(const std::string& path, const KvPool& pool, const std::string& identity) {
  BlockRunFile out;
  MILLRACE_TRY(out.file_, MappedFile::open(path));
  const std::span<const uint8_t> bytes = out.file_->bytes();
  RunHeader header;
  if (bytes.size() < sizeof header)
    return Error::corrupt(fmt::format("{}: has only {} bytes, is not a file of keys and values", path, bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kRunMagic, sizeof kRunMagic) != 0)
    return Error::corrupt(fmt::format("{}: is not a file of keys and values", path));
  if (header.version != kBlockRunVersion)
    return Error::corrupt(
        fmt::format("{}: has version {}, this build uses {}", path, header.version, kBlockRunVersion));
  uint64_t rest = bytes.size() - sizeof header;
  const uint64_t texts = uint64_t{header.identity_bytes} + header.layout_bytes;
  if (texts > rest || header.tokens > (rest - texts) / sizeof(TokenId) ||
      header.payload_bytes != rest - texts - header.tokens * sizeof(TokenId))
    return Error::corrupt(fmt::format("{}: has {} bytes, which do not agree with its header", path, bytes.size()));
  out.payload_at_ = static_cast<int64_t>(bytes.size() - header.payload_bytes);
  std::string head(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(out.payload_at_));
  std::memset(head.data() + offsetof(RunHeader, hash), 0, sizeof header.hash);
  if (XXH3_64bits(head.data(), head.size()) != header.hash)
    return Error::corrupt(fmt::format("{}: the header is damaged", path));
  const std::string_view found = std::string_view(head).substr(sizeof header, header.identity_bytes);
  const std::string_view layout =
      std::string_view(head).substr(sizeof header + header.identity_bytes, header.layout_bytes);
  if (found != identity)
    return Error::user(fmt::format("{}: is of another model or machine: {}", path, difference(found, identity)));
  out.run_.layer_begin = header.layer_begin;
  out.run_.layer_end = header.layer_end;
  const bool range = header.layer_begin < header.layer_end && header.layer_end <= pool.layout().layers.size();
  const std::string wanted = range ? layout_text(pool, header.layer_begin, header.layer_end) : std::string();
  if (layout != wanted)
    return Error::user(fmt::format("{}: has another layout of keys and values: {}", path, difference(layout, wanted)));
  const auto block_tokens = static_cast<uint64_t>(pool.layout().block_tokens);
  out.blocks_ = static_cast<int64_t>(header.tokens / block_tokens);
  if (header.tokens % block_tokens != 0 ||
      header.payload_bytes != static_cast<uint64_t>(run_bytes(pool, header.layer_begin, header.layer_end, out.blocks_)))
    return Error::corrupt(
        fmt::format("{}: {} tokens are not whole blocks, or their bytes are not all there", path, header.tokens));
  out.payload_hash_ = header.payload_hash;
  out.run_.identity = identity;
  out.run_.tokens.resize(header.tokens);
  std::memcpy(out.run_.tokens.data(), head.data() + sizeof header + texts, header.tokens * sizeof(TokenId));
  return out;
}

Result<void> BlockRunFile::read(KvPool& pool, std::span<const BlockId> blocks) {
  if (std::ssize(blocks) > blocks_) return Error::internal("keys and values: more blocks than the file has");
  const std::span<const uint8_t> payload = file_->bytes().subspan(static_cast<size_t>(payload_at_));
  if (XXH3_64bits(payload.data(), payload.size()) != payload_hash_)
    return Error::corrupt(fmt::format("{}: the keys and values are damaged", file_->path()));
  const uint8_t* from = payload.data();
  for (int64_t layer = run_.layer_begin; layer < run_.layer_end; ++layer) {
    const int64_t bytes = layer_block_bytes(pool, layer);
    for (size_t i = 0; i < blocks.size(); ++i) copy_in(pool, layer, blocks[i], from + static_cast<int64_t>(i) * bytes);
    from += blocks_ * bytes;
  }
  run_.state.resize(static_cast<size_t>(run_state_bytes(pool)) / sizeof(float));
  if (!run_.state.empty()) std::memcpy(run_.state.data(), from, run_.state.size() * sizeof(float));
  return {};
}

}  // namespace millrace
