#include "run/encoded_documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/kv_formats.h"
#include "models/mixers/mixer.h"
#include "models/visible.h"

namespace millrace {
namespace {

constexpr int64_t kPieceBlock = 16;  // tokens of a block
constexpr const char* kKeysAccount = "documents";
constexpr const char* kKeysAdvice = "ask for fewer document tokens, context=cepe:tokens=N, or raise the budget";

int64_t blocks_of(int64_t tokens) { return (tokens + kPieceBlock - 1) / kPieceBlock; }

Result<KvPool> make_pool(const KvLayout& layout, int64_t tokens) {
  MILLRACE_TRY_VOID(layout.check());
  return KvPool::create(layout, blocks_of(tokens));
}

Error in_cepe(const Error& error) { return {error.kind, "context cepe: " + error.message}; }

}  // namespace

Result<std::unique_ptr<EncodedDocuments>> EncodedDocuments::load(const EncoderChoice& choice,
                                                                 const LanguageModel& target,
                                                                 std::shared_ptr<ThreadPool> threads,
                                                                 const KvFormats& formats, int64_t batch_tokens) {
  auto made = std::unique_ptr<EncodedDocuments>(new EncodedDocuments());
  made->choice_ = choice;
  made->threads_ = std::move(threads);
  if (auto started = made->start(target, formats, batch_tokens); !started.ok()) return in_cepe(started.error());
  return made;
}

EncodedDocuments::~EncodedDocuments() = default;

Result<void> EncodedDocuments::start(const LanguageModel& target, const KvFormats& formats, int64_t batch_tokens) {
  const LanguageModel::Parts& parts = target.parts();
  const ArchSpec& model = parts.model->spec();
  MILLRACE_TRY(const auto files, open_draft_files(choice_.path));
  MILLRACE_TRY(encoder_, DocumentEncoder::load(files, parts.kernels, *threads_, parts.accounts));
  MILLRACE_TRY(cross_,
               CrossLayers::load(files, model, encoder_->spec().width, parts.kernels, *threads_, parts.accounts));
  if (encoder_->spec().vocab < model.vocab)
    return Error::user(fmt::format("{}: the encoder knows {} tokens, the model {}", choice_.path,
                                   encoder_->spec().vocab, model.vocab));
  if (choice_.piece > encoder_->longest())
    return Error::user(fmt::format("piece: the encoder of {} reads up to {} tokens at once, {} asked for", choice_.path,
                                   encoder_->longest(), choice_.piece));
  if (choice_.tokens < choice_.piece)
    return Error::user(fmt::format("tokens: {} are fewer than one piece of {}", choice_.tokens, choice_.piece));
  KvFormats exact;
  exact.keys = exact.values = find_format("f32");
  const KvLayout layout = formats.layout(kPieceBlock, layer_states(cross_->spec()));
  const KvLayout scratch = exact.layout(kPieceBlock, layer_states(encoder_->spec()));
  const ForwardLimits encoding{.tokens = choice_.piece, .outputs = 1, .context = choice_.piece};
  const ForwardLimits crossing{
      .tokens = batch_tokens, .outputs = 1, .context = blocks_of(choice_.tokens) * kPieceBlock};
  const int threads = threads_->threads();
  const ForwardBytes a = ForwardContext::plan(encoder_->spec(), encoding, threads, scratch);
  const ForwardBytes b = ForwardContext::plan(cross_->spec(), crossing, threads, layout);
  const int64_t floats = cross_->scratch_floats(choice_.piece);
  for (const auto& [account, bytes] :
       {std::pair{kKeysAccount, kv_pool_bytes(layout, blocks_of(choice_.tokens), {}) + 4 * choice_.tokens},
        {kEncoderAccount, kv_pool_bytes(scratch, blocks_of(choice_.piece), {}) + a.activations + a.logits +
                              b.activations + b.logits + 4 * floats}}) {
    MILLRACE_TRY(auto hold, MemoryHold::take(parts.accounts, account, bytes, kKeysAdvice));
    memory_.push_back(std::move(hold));
  }
  MILLRACE_TRY(pool_, make_pool(layout, choice_.tokens));
  MILLRACE_TRY(scratch_kv_, make_pool(scratch, choice_.piece));
  for (int64_t i = blocks_of(choice_.piece); i > 0; --i) {
    MILLRACE_TRY(const BlockId block, scratch_kv_->allocate());
    scratch_blocks_.push_back(block);
  }
  MILLRACE_TRY(encoding_, ForwardContext::create(encoder_->spec(), parts.kernels, *threads_, *scratch_kv_, encoding));
  MILLRACE_TRY(crossing_, ForwardContext::create(cross_->spec(), parts.kernels, *threads_, *pool_, crossing));
  MILLRACE_TRY(keys_, AlignedBuffer::allocate(4 * floats, kEncoderAccount));
  runs_.reserve(static_cast<size_t>(batch_tokens));
  kept_.reserve(static_cast<size_t>(batch_tokens));
  rows_.reserve(static_cast<size_t>(batch_tokens));
  batch_.tokens.reserve(static_cast<size_t>(batch_tokens));
  batch_.spans.reserve(static_cast<size_t>(batch_tokens));
  return {};
}

// Tokens of each piece, as the encoder reads them: each one begins with the start token, if it is wanted.
std::vector<std::vector<TokenId>> EncodedDocuments::cut(const DocumentTokens& documents) const {
  const bool starts = choice_.start && encoder_->start_token() >= 0;
  const int64_t each = choice_.piece - (starts ? 1 : 0);
  std::vector<std::vector<TokenId>> pieces;
  for (const std::vector<TokenId>& document : documents) {
    const int64_t tokens = std::ssize(document);
    for (int64_t begin = 0; begin < tokens; begin += each) {
      std::vector<TokenId>& piece = pieces.emplace_back();
      if (starts) piece.push_back(encoder_->start_token());
      piece.insert(piece.end(), document.begin() + begin, document.begin() + std::min(tokens, begin + each));
    }
  }
  return pieces;
}

Result<void> EncodedDocuments::check(const DocumentTokens& documents) const {
  int64_t blocks = 0, tokens = 0;
  for (const std::vector<TokenId>& document : documents) tokens += std::ssize(document);
  for (const std::vector<TokenId>& piece : cut(documents)) {
    for (const TokenId token : piece)
      if (token < 0 || token >= encoder_->spec().vocab)
        return Error::user(fmt::format("context cepe: the encoder has no token {}", token));
    blocks += blocks_of(std::ssize(piece));
  }
  if (blocks <= pool_->total_blocks()) return {};
  return Error::resource(fmt::format(
      "context cepe: documents of {} tokens in pieces of {} take {} blocks of {}, there are {}; send fewer, or start "
      "with more, context=cepe:tokens=N",
      tokens, choice_.piece, blocks, kPieceBlock, pool_->total_blocks()));
}

void EncodedDocuments::drop(Pieces::iterator piece) {
  for (const BlockId block : piece->second.blocks) pool_->release(block);
  pieces_.erase(piece);
}

// Evicts cached pieces. False: running streams hold too many blocks.
bool EncodedDocuments::make_room(int64_t blocks) {
  int64_t idle = 0;
  for (const auto& [tokens, piece] : pieces_)
    if (piece.leases == 0) idle += std::ssize(piece.blocks);
  if (pool_->free_blocks() + idle < blocks) return false;
  while (pool_->free_blocks() < blocks) {
    auto oldest = pieces_.end();
    for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece)
      if (piece->second.leases == 0 && (oldest == pieces_.end() || piece->second.released < oldest->second.released))
        oldest = piece;
    drop(oldest);
  }
  return true;
}

// All pieces or, if there is no room, none: null.
std::shared_ptr<DocumentLease> EncodedDocuments::take(const DocumentTokens& documents) {
  auto lease = std::make_shared<DocumentLease>(*this);
  for (std::vector<TokenId>& tokens : cut(documents)) {
    const auto [piece, added] = pieces_.try_emplace(std::move(tokens));
    ++piece->second.leases;
    lease->pieces_.push_back(piece);
  }
  int64_t wanted = 0;
  for (const auto& [tokens, piece] : pieces_)
    if (piece.blocks.empty()) wanted += blocks_of(std::ssize(tokens));
  if (!make_room(wanted)) return nullptr;  // the lease ends, and with it what it has added
  int64_t slot = 0;
  for (const auto piece : lease->pieces_) {
    std::vector<BlockId>& blocks = piece->second.blocks;
    const int64_t tokens = std::ssize(piece->first);
    for (int64_t i = std::ssize(blocks); i < blocks_of(tokens); ++i) blocks.push_back(pool_->allocate().value());
    lease->table_.insert(lease->table_.end(), blocks.begin(), blocks.end());
    lease->segments_.push_back({slot, slot + tokens});
    slot += std::ssize(blocks) * kPieceBlock;
  }
  return lease;
}

// What was never encoded is of no use to others.
void EncodedDocuments::release(DocumentLease& lease) {
  ++leases_;
  for (const auto piece : lease.pieces_) {
    if (--piece->second.leases > 0) continue;
    piece->second.released = leases_;
    if (!piece->second.encoded) drop(piece);
  }
}

bool EncodedDocuments::hold(const DocumentTokens& documents, std::shared_ptr<DocumentLease>& lease, int64_t& budget) {
  if (!lease) lease = take(documents);
  if (!lease) return false;
  for (; !lease->complete(); ++lease->encoded_) {
    auto& piece = *lease->pieces_[lease->encoded_];
    if (piece.second.encoded) continue;
    if (budget <= 0) return false;
    encode(piece);
    budget -= std::ssize(piece.first);
  }
  return true;
}

void EncodedDocuments::encode(Pieces::value_type& piece) {
  const ThreadPool::Turn turn(*threads_);
  const int64_t tokens = std::ssize(piece.first);
  encoder_->forward(piece.first, scratch_blocks_, encoder_batch_, *encoding_);
  cross_->store(encoding_->normed.as<float>(), tokens, piece.second.blocks, *pool_, keys_.as<float>(), *encoding_);
  piece.second.encoded = true;
  encoded_tokens_ += tokens;
}

void EncodedDocuments::begin_pass() {
  runs_.clear();
  gathered_ = false;
}

void EncodedDocuments::add(const DocumentLease& lease, int64_t first_row, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) runs_.push_back({&lease, static_cast<int32_t>(first_row + i)});
  gathered_ = false;
}

// The rows are at new places.
void EncodedDocuments::keep(std::span<const int32_t> rows) {
  kept_.clear();
  auto run = runs_.begin();
  for (size_t i = 0; i < rows.size(); ++i) {
    while (run != runs_.end() && run->row < rows[i]) ++run;
    if (run == runs_.end()) break;
    if (run->row == rows[i]) kept_.push_back({run->lease, static_cast<int32_t>(i)});
  }
  runs_.swap(kept_);
  gathered_ = false;
}

// Rows of one stream are a span that sees all its pieces.
void EncodedDocuments::gather() {
  rows_.clear();
  batch_.clear();
  const DocumentLease* last = nullptr;
  for (const Run& run : runs_) {
    if (run.lease != last) {
      const DocumentLease& lease = *run.lease;
      batch_.spans.push_back({batch_.size(), 0, lease.segments_.back().end, std::ssize(batch_.block_tables),
                              std::ssize(lease.table_), 0, static_cast<int32_t>(batch_.spans.size())});
      batch_.block_tables.insert(batch_.block_tables.end(), lease.table_.begin(), lease.table_.end());
      add_visibility({.segments = lease.segments_, .whole = true}, batch_);
      last = &lease;
    }
    ++batch_.spans.back().count;
    batch_.tokens.push_back(0);
    rows_.push_back(run.row);
  }
}

void EncodedDocuments::run(int64_t layer, float* residual) {
  if (!std::exchange(gathered_, true)) gather();
  cross_->run(layer, rows_, residual, batch_, *crossing_);
}

}  // namespace millrace
