#include "retrieve/document_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "retrieve/inner_product.h"
#include "retrieve/rank_fusion.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStoreName = "/index.sqlite";
constexpr double kSameModel = 0.999;  // cosine of the probe's vectors
constexpr int64_t kMaxPathBytes = 4096, kMaxTenantBytes = 256;
constexpr int64_t kFusionDepth = 3;  // lists that are fused have this many times k chunks
constexpr int64_t kMaxQuestionBytes = 1 << 16;

// Locks the index for one writer. Errors: user, resource.
Result<int> lock_folder(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return Error::user(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {  // other errors: a file system without locks
    ::close(file);
    return Error::resource(fmt::format("index {}: another process is writing to it; wait until it has ended", folder));
  }
  return file;
}

std::string hash_of(DocumentKind kind, std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), static_cast<XXH64_hash_t>(kind));
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Result<void> check_request(const SearchRequest& request) {
  if (request.k < 1 || request.k > kMaxSearchResults)
    return Error::user(fmt::format("k: must be 1 to {}, not {}", kMaxSearchResults, request.k));
  if (request.effort < 1 || request.effort > kMaxSearchEffort)
    return Error::user(fmt::format("effort: must be 1 to {}, not {}", kMaxSearchEffort, request.effort));
  return DocumentIndex::check_question(request.question);
}

// Returns the texts that are embedded: each chunk below its heading.
std::vector<std::string> embedded_texts(const ChunkedText& document) {
  std::vector<std::string> out;
  for (const TextChunk& chunk : document.chunks) {
    std::string text = chunk.heading.empty() ? "" : chunk.heading + "\n";
    text.append(document.text, static_cast<size_t>(chunk.begin), static_cast<size_t>(chunk.end - chunk.begin));
    out.push_back(std::move(text));
  }
  return out;
}

Error with_path(const std::string& path, const Error& error) {
  return {error.kind, fmt::format("{}: {}", path, error.message)};
}

}  // namespace

Result<void> DocumentIndex::check_question(std::string_view question) {
  if (std::ssize(question) <= kMaxQuestionBytes) return {};
  return Error::user(
      fmt::format("question: has {} bytes, at most {} are searched for", question.size(), kMaxQuestionBytes));
}

std::optional<SearchMode> find_search_mode(std::string_view name) {
  if (name == "hybrid") return SearchMode::hybrid;
  if (name == "vector") return SearchMode::vector;
  if (name == "text") return SearchMode::words;
  return std::nullopt;
}

DocumentIndex::~DocumentIndex() {
  if (lock_ >= 0) ::close(lock_);
}

bool DocumentIndex::exists(const std::string& folder) {
  std::error_code error;
  return fs::exists(folder + kStoreName, error);
}

Result<std::unique_ptr<DocumentIndex>> DocumentIndex::create(const std::string& folder, const IndexSettings& settings) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    return Error::user(
        fmt::format("index {}: cannot be used as a folder: {}", folder, error ? error.message() : "not a folder"));
  MILLRACE_TRY(const int lock, lock_folder(folder));
  auto out = std::unique_ptr<DocumentIndex>(new DocumentIndex(folder, lock));  // closes `lock`
  if (exists(folder)) return Error::user(fmt::format("index {}: exists already", folder));
  MILLRACE_TRY(out->store_, IndexStore::create(folder + kStoreName, settings));
  return out;
}

Result<std::unique_ptr<DocumentIndex>> DocumentIndex::open(const std::string& folder, IndexAccess access) {
  if (!exists(folder))
    return Error::user(
        fmt::format("index {}: there is none; create it with `millrace index add DIR --index {}`", folder, folder));
  int lock = -1;
  if (access == IndexAccess::write) {
    MILLRACE_TRY(lock, lock_folder(folder));
  }
  auto out = std::unique_ptr<DocumentIndex>(new DocumentIndex(folder, lock));
  MILLRACE_TRY(out->store_, IndexStore::open(folder + kStoreName));
  return out;
}

Result<void> DocumentIndex::limit_bytes(int64_t max_bytes) {
  std::lock_guard lock(mutex_);
  return store_->limit_bytes(max_bytes);
}

Result<void> DocumentIndex::check_model(TextVectors& vectors) const {
  const IndexSettings& made = store_->settings();
  if (made.width == 0)
    return Error::user(
        fmt::format("index {}: has words only, and no vectors; create another index with an embedding model", folder_));
  MILLRACE_TRY(const auto probe, vectors.of_documents(std::vector<std::string>{std::string(kProbeText)}));
  const auto width = std::ssize(probe.front());
  if (width == made.width && inner_product(probe.front().data(), made.probe.data(), probe.front().size()) >= kSameModel)
    return {};
  return Error::user(
      fmt::format("index {}: its vectors are of {} values from {}, and this embedding model computes others; use that "
                  "model, or create another index",
                  folder_, made.width, made.embedder));
}

Result<AddOutcome> DocumentIndex::add(const std::string& tenant, const std::string& path, DocumentKind kind,
                                      std::string_view bytes, TextVectors* vectors) {
  if (path.empty() || std::ssize(path) > kMaxPathBytes)
    return Error::user(fmt::format("document: its name must have 1 to {} bytes", kMaxPathBytes));
  if (std::ssize(tenant) > kMaxTenantBytes)
    return Error::user(fmt::format("tenant: at most {} bytes, not {}", kMaxTenantBytes, tenant.size()));
  std::lock_guard lock(mutex_);
  MILLRACE_TRY(const int64_t owner, store_->add_tenant(tenant));
  MILLRACE_TRY(const auto old, store_->find(owner, path));
  const std::string hash = hash_of(kind, bytes);
  if (old && old->hash == hash) return AddOutcome::unchanged;
  auto text = chunk_document(kind, bytes, settings().chunks);
  if (!text.ok()) return with_path(path, text.error());
  std::vector<std::vector<float>> rows;
  if (settings().width > 0 && !text->chunks.empty()) {
    if (!vectors) return Error::user(fmt::format("index {}: needs its embedding model", folder_));
    auto computed = vectors->of_documents(embedded_texts(*text));
    if (!computed.ok()) return with_path(path, computed.error());
    rows = std::move(*computed);
  }
  MILLRACE_TRY(VectorGraph * near, graph(owner));
  std::vector<int64_t> gone;
  if (old) {
    MILLRACE_TRY(gone, store_->chunks_of(old->id));
  }
  MILLRACE_TRY(const auto ids, store_->put({.tenant = owner,
                                            .path = path,
                                            .hash = hash,
                                            .kind = document_kind_name(kind),
                                            .bytes = std::ssize(bytes),
                                            .text = &*text,
                                            .vectors = rows}));
  if (near)
    for (const int64_t id : gone) near->remove(id);
  for (size_t i = 0; near && i < rows.size(); ++i) MILLRACE_TRY_VOID(near->add(ids[i], rows[i]));
  return old ? AddOutcome::replaced : AddOutcome::added;
}

Result<bool> DocumentIndex::remove(const std::string& tenant, const std::string& path) {
  std::lock_guard lock(mutex_);
  MILLRACE_TRY(const int64_t owner, store_->tenant(tenant));
  if (owner == 0) return false;
  MILLRACE_TRY(const auto old, store_->find(owner, path));
  if (!old) return false;
  MILLRACE_TRY(VectorGraph * near, graph(owner));
  MILLRACE_TRY(const auto gone, store_->chunks_of(old->id));
  MILLRACE_TRY(const bool removed, store_->remove(owner, path));
  if (near)
    for (const int64_t id : gone) near->remove(id);
  return removed;
}

Result<std::vector<IndexedDocument>> DocumentIndex::documents(const std::string& tenant) const {
  std::lock_guard lock(mutex_);
  MILLRACE_TRY(const int64_t owner, store_->tenant(tenant));
  if (owner == 0) return std::vector<IndexedDocument>();
  return store_->documents(owner);
}

std::string DocumentIndex::graph_path(int64_t tenant) const {
  return fmt::format("{}/vectors-{}.hnsw", folder_, tenant);
}

// Makes the graph have exactly the store's vectors.
Result<void> DocumentIndex::complete(int64_t tenant, VectorGraph& graph) const {
  MILLRACE_TRY(const auto stored, store_->chunk_ids(tenant));
  const std::vector<int64_t> have = graph.ids();
  std::vector<int64_t> extra, missing;
  std::ranges::set_difference(have, stored, std::back_inserter(extra));
  std::ranges::set_difference(stored, have, std::back_inserter(missing));
  for (const int64_t id : extra) graph.remove(id);
  for (const int64_t id : missing) {
    const auto values = store_->vector(id);
    if (!values.ok()) {
      MILLRACE_TRY(const auto now, store_->chunk_ids(tenant));
      if (std::ranges::binary_search(now, id)) return values.error();
      continue;  // another process has removed it meanwhile
    }
    MILLRACE_TRY_VOID(graph.add(id, *values));
  }
  return {};
}

Result<VectorGraph> DocumentIndex::rebuild(int64_t tenant) const {
  MILLRACE_TRY(VectorGraph out, VectorGraph::create(settings().width));
  MILLRACE_TRY_VOID(
      store_->vectors(tenant, [&](int64_t id, std::span<const float> values) { return out.add(id, values); }));
  return out;
}

// Returns null for an index without vectors.
Result<VectorGraph*> DocumentIndex::graph(int64_t tenant) const {
  if (settings().width == 0) return static_cast<VectorGraph*>(nullptr);
  auto found = graphs_.find(tenant);
  if (found == graphs_.end()) {
    auto loaded = VectorGraph::load(graph_path(tenant), store_->identity(), settings().width);
    if (!loaded) {
      MILLRACE_TRY(loaded, rebuild(tenant));
      if (loaded->size() > 0) ++rebuilt_;
    }
    found = graphs_.emplace(tenant, CachedGraph{std::move(*loaded)}).first;
  }
  CachedGraph& cached = found->second;
  MILLRACE_TRY(const int64_t version, store_->version());
  if (cached.version != version) MILLRACE_TRY_VOID(complete(tenant, cached.graph));
  cached.version = version;
  return &cached.graph;
}

Result<std::vector<RankedChunk>> DocumentIndex::by_vector(int64_t tenant, const SearchRequest& request,
                                                          int64_t k) const {
  std::vector<NearVector> found;
  if (request.exact) {
    MILLRACE_TRY_VOID(store_->vectors(tenant, [&](int64_t id, std::span<const float> values) -> Result<void> {
      found.push_back({id, inner_product(values.data(), request.vector.data(), values.size())});
      return {};
    }));
    keep_nearest(found, k);
  } else {
    MILLRACE_TRY(const VectorGraph* near, graph(tenant));
    found = near->near(request.vector, k, request.effort);
  }
  std::vector<RankedChunk> out;
  for (const NearVector& one : found) out.push_back({one.id, one.similarity});
  return out;
}

// Without the chunks' texts.
Result<std::vector<RankedChunk>> DocumentIndex::ranked(const SearchRequest& request) const {
  const bool has_vectors = settings().width > 0;
  if (request.mode == SearchMode::vector && !has_vectors)
    return Error::user(fmt::format("index {}: has no vectors; search it by words, with mode text", folder_));
  const bool by_vectors = has_vectors && request.mode != SearchMode::words;
  if (by_vectors && std::ssize(request.vector) != settings().width)
    return Error::user(fmt::format("index {}: the question's vector has {} values, not {}", folder_,
                                   request.vector.size(), settings().width));
  const bool fuses = by_vectors && request.mode == SearchMode::hybrid;
  const int64_t depth = fuses ? request.k * kFusionDepth : request.k;
  std::vector<RankedChunk> words, near;
  std::vector<std::string> tenants = request.tenants;
  std::ranges::sort(tenants);
  tenants.erase(std::ranges::unique(tenants).begin(), tenants.end());
  for (const std::string& name : tenants) {
    MILLRACE_TRY(const int64_t tenant, store_->tenant(name));
    if (tenant == 0) continue;
    if (by_vectors) {
      MILLRACE_TRY(const auto some, by_vector(tenant, request, depth));
      near.insert(near.end(), some.begin(), some.end());
    }
    if (request.mode == SearchMode::vector) continue;
    MILLRACE_TRY(const auto some, store_->by_words(tenant, request.question, depth));
    words.insert(words.end(), some.begin(), some.end());
  }
  keep_best(near, depth);
  keep_best(words, depth);
  std::vector<RankedChunk> out = fuses ? fuse_ranks(std::vector{near, words}) : by_vectors ? near : words;
  keep_best(out, request.k);
  return out;
}

Result<std::vector<SearchHit>> DocumentIndex::search(const SearchRequest& request) const {
  MILLRACE_TRY_VOID(check_request(request));
  std::lock_guard lock(mutex_);
  MILLRACE_TRY(const auto best, ranked(request));
  std::vector<SearchHit> out;
  for (const RankedChunk& one : best) {
    MILLRACE_TRY(auto chunk, store_->chunk(one.id));
    if (chunk) out.push_back({std::move(*chunk), one.score});  // another process may have removed it
  }
  return out;
}

Result<IndexStats> DocumentIndex::stats() const {
  std::lock_guard lock(mutex_);
  IndexStats out;
  out.settings = settings();
  MILLRACE_TRY(const auto tenants, store_->tenants());
  for (const auto& [id, name] : tenants) {
    MILLRACE_TRY(const auto documents, store_->documents(id));
    MILLRACE_TRY(const auto ids, store_->chunk_ids(id));
    out.tenants += documents.empty() ? 0 : 1;
    out.documents += std::ssize(documents);
    out.vectors += std::ssize(ids);
    for (const IndexedDocument& one : documents) {
      out.chunks += one.chunks;
      out.text_bytes += one.bytes;
    }
  }
  MILLRACE_TRY(out.store_bytes, store_->bytes());
  return out;
}

Result<void> DocumentIndex::check() const {
  std::lock_guard lock(mutex_);
  MILLRACE_TRY_VOID(store_->check());
  MILLRACE_TRY(const auto tenants, store_->tenants());
  for (const auto& [id, name] : tenants) {
    MILLRACE_TRY(const VectorGraph* near, graph(id));
    if (!near) return {};
    MILLRACE_TRY(const auto ids, store_->chunk_ids(id));
    if (near->ids() != ids)
      return Error::corrupt(
          fmt::format("index {}: the graph of tenant '{}' has other vectors than the store", folder_, name));
  }
  return {};
}

Result<void> DocumentIndex::save_graph(int64_t tenant, const VectorGraph& graph) const {
  if (graph.removed() <= graph.size()) return graph.save(graph_path(tenant), store_->identity());
  MILLRACE_TRY(const VectorGraph smaller, rebuild(tenant));  // more removed vectors than others
  return smaller.save(graph_path(tenant), store_->identity());
}

Result<void> DocumentIndex::save() {
  std::lock_guard lock(mutex_);
  if (lock_ >= 0)
    for (const auto& [tenant, cached] : graphs_) MILLRACE_TRY_VOID(save_graph(tenant, cached.graph));
  return store_->flush();
}

}  // namespace millrace
