#include "retrieve/index_store.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/publish.h"

namespace millrace {
namespace {

constexpr int64_t kSchema = 1;
constexpr int64_t kMaxVectorWidth = 1 << 16;
constexpr size_t kMaxQueryWords = 128;

constexpr const char* kTables = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE tenants(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE documents(id INTEGER PRIMARY KEY AUTOINCREMENT, tenant INTEGER NOT NULL, path TEXT NOT NULL,
  hash TEXT NOT NULL, kind TEXT NOT NULL, bytes INTEGER NOT NULL, UNIQUE(tenant, path));
CREATE TABLE chunks(id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
  "begin" INTEGER NOT NULL, "end" INTEGER NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL, vector BLOB,
  UNIQUE(document, ordinal));
)";

std::span<const char> bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

Error damaged(const std::string& what) {
  return Error::corrupt(fmt::format("index: {}; the file is damaged: create the index again from its documents", what));
}

// `width`: values that it must have; 0: any number.
Result<std::vector<float>> vector_of(std::span<const char> bytes, int64_t width) {
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(float));
  if (bytes.size() % sizeof(float) != 0 || count > kMaxVectorWidth || (width > 0 && count != width))
    return damaged(fmt::format("a vector has {} bytes, not {} values", bytes.size(), width));
  std::vector<float> out(static_cast<size_t>(count));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  for (const float value : out)
    if (!std::isfinite(value)) return damaged("a vector has a value that is not finite");
  return out;
}

Result<int64_t> number_of(const std::string& key, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return damaged(fmt::format("{} is '{}'", key, text.substr(0, 40)));
  return value;
}

Result<void> put_meta(const SqliteDatabase& database, std::string_view key, std::string_view value) {
  MILLRACE_TRY(auto statement, database.prepare("INSERT OR REPLACE INTO meta VALUES(?1, ?2)"));
  return statement.bind(1, key).bind(2, value).run();
}

bool is_word(unsigned char c) {
  return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::string words_query(std::string_view question) {
  std::string out;
  size_t words = 0;
  for (size_t at = 0; at < question.size() && words < kMaxQueryWords;) {
    if (!is_word(static_cast<unsigned char>(question[at]))) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < question.size() && is_word(static_cast<unsigned char>(question[end]))) ++end;
    out += fmt::format("{}\"{}\"", words++ == 0 ? "" : " OR ", question.substr(at, end - at));
    at = end;
  }
  return out;
}

namespace {

Result<void> write_new(const std::string& path, const IndexSettings& settings) {
  MILLRACE_TRY(const auto file, SqliteDatabase::open(path, /*create=*/true));
  MILLRACE_TRY(auto transaction, SqliteTransaction::begin(*file));
  MILLRACE_TRY_VOID(file->execute(kTables));
  std::random_device random;
  const std::pair<std::string_view, std::string> kValues[] = {
      {"schema", std::to_string(kSchema)},
      {"identity", fmt::format("{:08x}{:08x}", random(), random())},
      {"embedder", settings.embedder},
      {"width", std::to_string(settings.width)},
      {"chunk_bytes", std::to_string(settings.chunks.max_bytes)},
      {"chunk_overlap", std::to_string(settings.chunks.overlap_bytes)}};
  for (const auto& [key, value] : kValues) MILLRACE_TRY_VOID(put_meta(*file, key, value));
  MILLRACE_TRY(auto probe, file->prepare("INSERT INTO meta VALUES('probe', ?1)"));
  MILLRACE_TRY_VOID(probe.bind_bytes(1, bytes_of(settings.probe)).run());
  MILLRACE_TRY_VOID(transaction.commit());
  return file->execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace

Result<std::unique_ptr<IndexStore>> IndexStore::create(const std::string& path, const IndexSettings& settings) {
  const std::string fresh = path + ".new";
  for (const char* suffix : {"", "-wal", "-shm"}) {  // of a process that ended too early
    std::error_code ignored;
    std::filesystem::remove(fresh + suffix, ignored);
  }
  MILLRACE_TRY_VOID(write_new(fresh, settings));
  if (const auto reason = publish(fresh, path))
    return Error::resource(fmt::format("{}: cannot be written: {}", path, reason.message()));
  return open(path);
}

Result<std::unique_ptr<IndexStore>> IndexStore::open(const std::string& path) {
  MILLRACE_TRY(auto database, SqliteDatabase::open(path, /*create=*/false));
  auto out = std::unique_ptr<IndexStore>(new IndexStore(std::move(database)));
  MILLRACE_TRY_VOID(out->read_settings());
  return out;
}

Result<void> IndexStore::limit_bytes(int64_t max_bytes) {
  MILLRACE_TRY(auto size, database_->prepare("PRAGMA page_size"));
  MILLRACE_TRY(const bool known, size.step());
  const int64_t page = known ? std::max<int64_t>(size.integer(0), 1) : 4096;
  const int64_t kAll = 4294967294;  // SQLite's own limit
  return database_->execute(
      fmt::format("PRAGMA max_page_count={}", max_bytes > 0 ? std::clamp<int64_t>(max_bytes / page, 1, kAll) : kAll));
}

Result<std::string> IndexStore::meta(std::string_view key) const {
  MILLRACE_TRY(auto statement, database_->prepare("SELECT value FROM meta WHERE key = ?1"));
  MILLRACE_TRY(const bool found, statement.bind(1, key).step());
  if (!found) return damaged(fmt::format("{} is missing", key));
  const auto bytes = statement.bytes(0);
  return std::string(bytes.data(), bytes.size());
}

Result<void> IndexStore::read_settings() {
  MILLRACE_TRY(const std::string schema, meta("schema"));
  if (schema != std::to_string(kSchema))
    return Error::unsupported(fmt::format(
        "index: has schema {}, and this program reads schema {}; use the program that wrote it, or create it again",
        schema.substr(0, 20), kSchema));
  MILLRACE_TRY(identity_, meta("identity"));
  if (identity_.size() != 16 || identity_.find_first_not_of("0123456789abcdef") != std::string::npos)
    return damaged("its identity is not 16 digits");
  MILLRACE_TRY(settings_.embedder, meta("embedder"));
  MILLRACE_TRY(const std::string width, meta("width"));
  MILLRACE_TRY(settings_.width, number_of("width", width, 0, kMaxVectorWidth));
  MILLRACE_TRY(const std::string chunk, meta("chunk_bytes"));
  MILLRACE_TRY(settings_.chunks.max_bytes, number_of("chunk_bytes", chunk, kMinChunkBytes, kMaxChunkBytes));
  MILLRACE_TRY(const std::string overlap, meta("chunk_overlap"));
  MILLRACE_TRY(settings_.chunks.overlap_bytes, number_of("chunk_overlap", overlap, 0, settings_.chunks.max_bytes / 2));
  MILLRACE_TRY(const std::string probe, meta("probe"));
  MILLRACE_TRY(settings_.probe, vector_of(probe, settings_.width));
  if (std::ssize(settings_.probe) != settings_.width) return damaged("the probe's vector has another width");
  return {};
}

Result<int64_t> IndexStore::tenant(std::string_view name) const {
  MILLRACE_TRY(auto statement, database_->prepare("SELECT id FROM tenants WHERE name = ?1"));
  MILLRACE_TRY(const bool found, statement.bind(1, name).step());
  return found ? statement.integer(0) : 0;
}

Result<int64_t> IndexStore::add_tenant(std::string_view name) {
  MILLRACE_TRY(const int64_t known, tenant(name));
  if (known > 0) return known;
  MILLRACE_TRY(auto transaction, SqliteTransaction::begin(*database_));
  {
    MILLRACE_TRY(auto statement, database_->prepare("INSERT INTO tenants(name) VALUES(?1)"));
    MILLRACE_TRY_VOID(statement.bind(1, name).run());
  }
  const int64_t id = database_->last_id();
  MILLRACE_TRY_VOID(database_->execute(
      fmt::format("CREATE VIRTUAL TABLE words_{} USING fts5(heading, text, content='chunks', content_rowid='id', "
                  "tokenize='unicode61 remove_diacritics 2')",
                  id)));
  MILLRACE_TRY_VOID(transaction.commit());
  return id;
}

Result<std::vector<std::pair<int64_t, std::string>>> IndexStore::tenants() const {
  std::vector<std::pair<int64_t, std::string>> out;
  MILLRACE_TRY(auto statement, database_->prepare("SELECT id, name FROM tenants ORDER BY name"));
  while (true) {
    MILLRACE_TRY(const bool row, statement.step());
    if (!row) return out;
    out.emplace_back(statement.integer(0), statement.text(1));
  }
}

namespace {

constexpr std::string_view kDocumentColumns =
    "SELECT d.id, d.path, d.hash, d.kind, d.bytes, (SELECT count(*) FROM chunks WHERE document = d.id) FROM documents "
    "d ";

IndexedDocument document_of(const SqliteStatement& row) {
  return {.id = row.integer(0),
          .path = std::string(row.text(1)),
          .hash = std::string(row.text(2)),
          .kind = std::string(row.text(3)),
          .bytes = row.integer(4),
          .chunks = row.integer(5)};
}

}  // namespace

Result<std::optional<IndexedDocument>> IndexStore::find(int64_t tenant, std::string_view path) const {
  MILLRACE_TRY(auto statement,
               database_->prepare(std::string(kDocumentColumns) + "WHERE d.tenant = ?1 AND d.path = ?2"));
  MILLRACE_TRY(const bool found, statement.bind(1, tenant).bind(2, path).step());
  if (!found) return std::optional<IndexedDocument>();
  return std::optional(document_of(statement));
}

Result<std::vector<IndexedDocument>> IndexStore::documents(int64_t tenant) const {
  std::vector<IndexedDocument> out;
  MILLRACE_TRY(auto statement,
               database_->prepare(std::string(kDocumentColumns) + "WHERE d.tenant = ?1 ORDER BY d.path"));
  statement.bind(1, tenant);
  while (true) {
    MILLRACE_TRY(const bool row, statement.step());
    if (!row) return out;
    out.push_back(document_of(statement));
  }
}

// Within a transaction.
Result<void> IndexStore::remove_rows(int64_t tenant, int64_t document) {
  MILLRACE_TRY(auto words,
               database_->prepare(fmt::format("INSERT INTO words_{0}(words_{0}, rowid, heading, text) "
                                              "SELECT 'delete', id, heading, text FROM chunks WHERE document = ?1",
                                              tenant)));
  MILLRACE_TRY_VOID(words.bind(1, document).run());
  MILLRACE_TRY(auto chunks, database_->prepare("DELETE FROM chunks WHERE document = ?1"));
  MILLRACE_TRY_VOID(chunks.bind(1, document).run());
  MILLRACE_TRY(auto row, database_->prepare("DELETE FROM documents WHERE id = ?1"));
  return row.bind(1, document).run();
}

Result<std::vector<int64_t>> IndexStore::put(const NewDocument& document) {
  MILLRACE_TRY(auto transaction, SqliteTransaction::begin(*database_));
  MILLRACE_TRY(const auto old, find(document.tenant, document.path));
  if (old) MILLRACE_TRY_VOID(remove_rows(document.tenant, old->id));
  {
    MILLRACE_TRY(auto row, database_->prepare(
                               "INSERT INTO documents(tenant, path, hash, kind, bytes) VALUES(?1, ?2, ?3, ?4, ?5)"));
    row.bind(1, document.tenant).bind(2, document.path).bind(3, document.hash);
    MILLRACE_TRY_VOID(row.bind(4, document.kind).bind(5, document.bytes).run());
  }
  const int64_t id = database_->last_id();
  std::vector<int64_t> out;
  MILLRACE_TRY(auto insert,
               database_->prepare("INSERT INTO chunks(document, ordinal, \"begin\", \"end\", heading, text, vector) "
                                  "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"));
  MILLRACE_TRY(auto words, database_->prepare(fmt::format(
                               "INSERT INTO words_{}(rowid, heading, text) VALUES(?1, ?2, ?3)", document.tenant)));
  const auto& chunks = document.text->chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const TextChunk& chunk = chunks[i];
    const auto text = std::string_view(document.text->text)
                          .substr(static_cast<size_t>(chunk.begin), static_cast<size_t>(chunk.end - chunk.begin));
    insert.bind(1, id).bind(2, static_cast<int64_t>(i)).bind(3, chunk.begin).bind(4, chunk.end);
    insert.bind(5, chunk.heading).bind(6, text);
    if (!document.vectors.empty()) insert.bind_bytes(7, bytes_of(document.vectors[i]));
    MILLRACE_TRY_VOID(insert.run());
    out.push_back(database_->last_id());
    MILLRACE_TRY_VOID(words.bind(1, out.back()).bind(2, chunk.heading).bind(3, text).run());
  }
  MILLRACE_TRY_VOID(transaction.commit());
  return out;
}

Result<bool> IndexStore::remove(int64_t tenant, std::string_view path) {
  MILLRACE_TRY(auto transaction, SqliteTransaction::begin(*database_));
  MILLRACE_TRY(const auto old, find(tenant, path));
  if (!old) return false;
  MILLRACE_TRY_VOID(remove_rows(tenant, old->id));
  MILLRACE_TRY_VOID(transaction.commit());
  return true;
}

Result<std::vector<int64_t>> IndexStore::chunk_ids(int64_t tenant) const {
  std::vector<int64_t> out;
  MILLRACE_TRY(auto statement, database_->prepare("SELECT c.id FROM chunks c JOIN documents d ON d.id = c.document "
                                                  "WHERE d.tenant = ?1 AND c.vector IS NOT NULL ORDER BY c.id"));
  statement.bind(1, tenant);
  while (true) {
    MILLRACE_TRY(const bool row, statement.step());
    if (!row) return out;
    out.push_back(statement.integer(0));
  }
}

Result<std::vector<int64_t>> IndexStore::chunks_of(int64_t document) const {
  std::vector<int64_t> out;
  MILLRACE_TRY(auto statement, database_->prepare("SELECT id FROM chunks WHERE document = ?1 ORDER BY ordinal"));
  statement.bind(1, document);
  while (true) {
    MILLRACE_TRY(const bool row, statement.step());
    if (!row) return out;
    out.push_back(statement.integer(0));
  }
}

Result<void> IndexStore::vectors(int64_t tenant, const VectorSink& take) const {
  MILLRACE_TRY(auto statement,
               database_->prepare("SELECT c.id, c.vector FROM chunks c JOIN documents d ON d.id = c.document "
                                  "WHERE d.tenant = ?1 AND c.vector IS NOT NULL ORDER BY c.id"));
  statement.bind(1, tenant);
  while (true) {
    MILLRACE_TRY(const bool row, statement.step());
    if (!row) return {};
    MILLRACE_TRY(const auto values, vector_of(statement.bytes(1), settings_.width));
    MILLRACE_TRY_VOID(take(statement.integer(0), values));
  }
}

Result<std::vector<float>> IndexStore::vector(int64_t id) const {
  MILLRACE_TRY(auto statement, database_->prepare("SELECT vector FROM chunks WHERE id = ?1"));
  MILLRACE_TRY(const bool found, statement.bind(1, id).step());
  if (!found) return damaged(fmt::format("chunk {} is missing", id));
  return vector_of(statement.bytes(0), settings_.width);
}

Result<std::optional<IndexedChunk>> IndexStore::chunk(int64_t id) const {
  MILLRACE_TRY(auto row,
               database_->prepare("SELECT d.path, c.heading, c.text, c.ordinal, c.\"begin\", c.\"end\" FROM chunks c "
                                  "JOIN documents d ON d.id = c.document WHERE c.id = ?1"));
  MILLRACE_TRY(const bool found, row.bind(1, id).step());
  if (!found) return std::optional<IndexedChunk>();
  return std::optional(IndexedChunk{.id = id,
                                    .path = std::string(row.text(0)),
                                    .heading = std::string(row.text(1)),
                                    .text = std::string(row.text(2)),
                                    .ordinal = row.integer(3),
                                    .begin = row.integer(4),
                                    .end = row.integer(5)});
}

Result<std::vector<RankedChunk>> IndexStore::by_words(int64_t tenant, std::string_view question, int64_t k) const {
  std::vector<RankedChunk> out;
  const std::string query = words_query(question);
  if (query.empty() || tenant == 0) return out;
  MILLRACE_TRY(auto statement, database_->prepare(fmt::format(
                                   "SELECT rowid, bm25(words_{0}) AS score FROM words_{0} WHERE words_{0} MATCH ?1 "
                                   "ORDER BY score, rowid LIMIT ?2",
                                   tenant)));
  statement.bind(1, query).bind(2, k);
  while (true) {
    MILLRACE_TRY(const bool row, statement.step());
    if (!row) return out;
    out.push_back({statement.integer(0), -statement.number(1)});
  }
}

Result<void> IndexStore::flush() const { return database_->execute("PRAGMA wal_checkpoint(TRUNCATE)"); }

Result<int64_t> IndexStore::bytes() const {
  MILLRACE_TRY(auto row, database_->prepare("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"));
  MILLRACE_TRY(const bool found, row.step());
  return found ? row.integer(0) : 0;
}

Result<int64_t> IndexStore::version() const {
  MILLRACE_TRY(auto row, database_->prepare("PRAGMA data_version"));
  MILLRACE_TRY(const bool found, row.step());
  return found ? row.integer(0) : 0;
}

Result<void> IndexStore::check() const {
  MILLRACE_TRY(auto row, database_->prepare("PRAGMA quick_check(1)"));
  MILLRACE_TRY(const bool found, row.step());
  if (!found || row.text(0) != "ok") return damaged(std::string(row.text(0)));
  MILLRACE_TRY(const auto all, tenants());
  for (const auto& [id, name] : all) {
    MILLRACE_TRY(auto counts, database_->prepare(fmt::format(
                                  "SELECT (SELECT count(*) FROM words_{}_docsize), (SELECT count(*) FROM chunks c JOIN "
                                  "documents d ON d.id = c.document WHERE d.tenant = ?1)",
                                  id)));
    MILLRACE_TRY(const bool counted, counts.bind(1, id).step());
    if (!counted || counts.integer(0) != counts.integer(1))
      return damaged(
          fmt::format("{} chunks of tenant '{}' have words, of {}", counts.integer(0), name, counts.integer(1)));
  }
  return {};
}

}  // namespace millrace
