#include "speculate/datastore.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/memory.h"
#include "base/pending_file.h"
#include "speculate/suffix_array.h"

namespace millrace {
namespace {

constexpr std::array<char, 8> kDatastoreMagic = {'M', 'R', 'D', 'A', 'T', 'A', 'S', 'T'};
constexpr uint32_t kDatastoreVersion = 1;

struct DatastoreHeader {
  std::array<char, 8> magic = kDatastoreMagic;
  uint32_t version = kDatastoreVersion;
  uint32_t bytes = kDatastoreHeader;
  int64_t vocab = 0;
  uint64_t vocabulary = 0;
  int64_t tokens = 0;
  uint64_t body_sum = 0;
  uint64_t unused = 0;
  uint64_t header_sum = 0;  // of the bytes before it

  uint64_t sum() const { return XXH3_64bits(this, sizeof(*this) - sizeof(header_sum)); }
};
static_assert(sizeof(DatastoreHeader) == kDatastoreHeader);

struct SumDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

Error datastore_error(const std::string& path, const std::string& what) {
  return Error::corrupt(fmt::format("{}: {}; write it again with `millrace datastore`", path, what));
}

}  // namespace

uint64_t vocabulary_hash(std::span<const std::string> tokens) {
  const std::unique_ptr<XXH3_state_t, SumDeleter> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  for (const std::string& token : tokens) {
    const auto bytes = static_cast<uint64_t>(token.size());
    XXH3_64bits_update(state.get(), &bytes, sizeof(bytes));
    XXH3_64bits_update(state.get(), token.data(), token.size());
  }
  return std::max<uint64_t>(1, XXH3_64bits_digest(state.get()));
}

Result<void> write_datastore(const std::string& path, int64_t vocab, uint64_t vocabulary,
                             std::span<const TokenId> tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  if (size == 0) return Error::user("datastore: the texts have no tokens");
  if (size > kMaxDatastoreTokens)
    return Error::user(fmt::format("datastore: {} tokens; a file holds at most {}", size, kMaxDatastoreTokens));
  for (const TokenId token : tokens)
    if (token < 0 || token > vocab)
      return Error::user(fmt::format("datastore: token {} is outside the vocabulary of {}", token, vocab));
  MILLRACE_TRY_VOID(check_memory(suffix_array_bytes(size, vocab + 1), fmt::format("suffix array of {} tokens", size),
                                 "give less text"));
  const std::vector<int32_t> suffixes = suffix_array(tokens, static_cast<int32_t>(vocab + 1));
  DatastoreHeader header{.vocab = vocab, .vocabulary = vocabulary, .tokens = size};
  const std::unique_ptr<XXH3_state_t, SumDeleter> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), tokens.data(), tokens.size_bytes());
  XXH3_64bits_update(state.get(), suffixes.data(), tokens.size_bytes());
  header.body_sum = XXH3_64bits_digest(state.get());
  header.header_sum = header.sum();
  PendingFile file(path);
  const int64_t bytes = 4 * size;
  if (!file.created() || !file.write(&header, kDatastoreHeader, 0) ||
      !file.write(tokens.data(), bytes, kDatastoreHeader) ||
      !file.write(suffixes.data(), bytes, kDatastoreHeader + bytes) || !file.commit())
    return Error::resource(fmt::format("{}: could not be written: {}", path, std::strerror(errno)));
  return {};
}

Result<Datastore> Datastore::open(const std::string& path) {
  Datastore store;
  MILLRACE_TRY(store.file_, MappedFile::open(path));
  const auto bytes = store.file_->bytes();
  DatastoreHeader header;
  if (static_cast<int64_t>(bytes.size()) < kDatastoreHeader)
    return datastore_error(path, fmt::format("{} bytes are too few for a datastore", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kDatastoreMagic) return Error::corrupt(path + ": is not a datastore");
  if (header.version != kDatastoreVersion)
    return datastore_error(path, fmt::format("version {} of the format; this millrace reads version {}", header.version,
                                             kDatastoreVersion));
  if (header.header_sum != header.sum()) return datastore_error(path, "the header is damaged");
  if (header.bytes != kDatastoreHeader || header.vocab < 1 || header.vocab >= INT32_MAX || header.tokens < 1 ||
      header.tokens > kMaxDatastoreTokens)
    return datastore_error(path, "the header has impossible sizes");
  const int64_t expected = kDatastoreHeader + 8 * header.tokens;
  if (static_cast<int64_t>(bytes.size()) != expected)
    return datastore_error(path, fmt::format("has {} bytes, its header promises {}", bytes.size(), expected));
  store.text_ = reinterpret_cast<const int32_t*>(bytes.data() + kDatastoreHeader);
  store.suffixes_ = store.text_ + header.tokens;
  store.vocab_ = header.vocab;
  store.tokens_ = header.tokens;
  store.vocabulary_ = header.vocabulary;
  store.sum_ = header.body_sum;
  return store;
}

Result<void> Datastore::verify() const {
  const auto body = file_->bytes().subspan(kDatastoreHeader);
  if (XXH3_64bits(body.data(), body.size()) != sum_) return datastore_error(file_->path(), "is damaged");
  return {};
}

Result<void> Datastore::check_vocabulary(int64_t vocab, uint64_t vocabulary) const {
  if (vocab != vocab_)
    return Error::user(
        fmt::format("{}: was written for a vocabulary of {} tokens, the model has {}", file_->path(), vocab_, vocab));
  if (vocabulary != 0 && vocabulary != vocabulary_)
    return Error::user(fmt::format("{}: was written for another vocabulary of {} tokens; write it with this model",
                                   file_->path(), vocab_));
  return {};
}

TokenId Datastore::after(int64_t place, int64_t depth) const {
  const int64_t start = suffixes_[place];
  if (start < 0 || start >= tokens_ - depth) return -1;
  return text_[start + depth];
}

Datastore::Range Datastore::narrow(Range range, int64_t depth, TokenId token) const {
  const auto first_at_least = [&](int64_t begin, int64_t end, int64_t value) {
    while (begin < end) {
      const int64_t middle = begin + (end - begin) / 2;
      if (after(middle, depth) < value)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  };
  const int64_t begin = first_at_least(range.begin, range.end, token);
  return {begin, first_at_least(begin, range.end, int64_t{token} + 1)};
}

Datastore::Range Datastore::find(std::span<const TokenId> sequence) const {
  Range range = all();
  for (size_t i = 0; i < sequence.size() && range.count() > 0; ++i)
    range = narrow(range, static_cast<int64_t>(i), sequence[i]);
  return range;
}

}  // namespace millrace
