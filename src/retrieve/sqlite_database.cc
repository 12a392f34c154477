#include "retrieve/sqlite_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

namespace millrace {
namespace {

constexpr int kWaitMs = 5000;  // wait for another process's transaction
constexpr int kMaxValueBytes = 64 << 20;

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)), bound_(other.bound_) {}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

SqliteStatement& SqliteStatement::bind(int parameter, int64_t value) {
  const int code = sqlite3_bind_int64(statement_, parameter, value);
  if (bound_ == SQLITE_OK) bound_ = code;
  return *this;
}

SqliteStatement& SqliteStatement::bind(int parameter, std::string_view text) {
  const int code = sqlite3_bind_text64(statement_, parameter, text.data() ? text.data() : "", text.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8);
  if (bound_ == SQLITE_OK) bound_ = code;
  return *this;
}

SqliteStatement& SqliteStatement::bind_bytes(int parameter, std::span<const char> bytes) {
  const int code =
      sqlite3_bind_blob64(statement_, parameter, bytes.empty() ? "" : bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  if (bound_ == SQLITE_OK) bound_ = code;
  return *this;
}

Result<bool> SqliteStatement::step() {
  const int code = bound_ == SQLITE_OK ? sqlite3_step(statement_) : bound_;
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->error(code);
}

Result<void> SqliteStatement::run() {
  const Result<bool> done = step();
  reset();
  if (!done.ok()) return done.error();
  return {};
}

void SqliteStatement::reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  bound_ = SQLITE_OK;
}

int64_t SqliteStatement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double SqliteStatement::number(int column) const { return sqlite3_column_double(statement_, column); }

std::string_view SqliteStatement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text ? std::string_view(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)))
              : std::string_view();
}

std::span<const char> SqliteStatement::bytes(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return data ? std::span(data, static_cast<size_t>(sqlite3_column_bytes(statement_, column)))
              : std::span<const char>();
}

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::open(const std::string& path, bool create) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0) | SQLITE_OPEN_FULLMUTEX;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  auto out = std::unique_ptr<SqliteDatabase>(new SqliteDatabase(path, handle));
  if (code != SQLITE_OK) return out->error(code);
  sqlite3_busy_timeout(handle, kWaitMs);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  MILLRACE_TRY_VOID(
      out->execute("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA journal_mode=WAL; "
                   "PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=OFF"));
  return out;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(handle_); }

Result<SqliteStatement> SqliteDatabase::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return error(code);
  return SqliteStatement(*this, statement);
}

Result<void> SqliteDatabase::execute(const std::string& sql) const {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return error(code);
  return {};
}

int64_t SqliteDatabase::last_id() const { return sqlite3_last_insert_rowid(handle_); }

Error SqliteDatabase::error(int code) const {
  const char* reason = handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error::resource(fmt::format("{}: another process is writing to it; try again when it has ended", path_));
    case SQLITE_FULL:
      return Error::resource(
          fmt::format("{}: there is no room for more, on the disk or within the limit of bytes; nothing of this "
                      "document was stored",
                      path_));
    case SQLITE_NOMEM: return Error::resource(fmt::format("{}: {}", path_, reason));
    case SQLITE_IOERR: return Error::resource(fmt::format("{}: the disk cannot be read or written: {}", path_, reason));
    case SQLITE_TOOBIG: return Error::resource(fmt::format("{}: a value is too large: {}", path_, reason));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Error::corrupt(fmt::format("{}: is damaged, or not an index: {}", path_, reason));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return Error::user(fmt::format("{}: cannot be opened for writing: {}", path_, reason));
    case SQLITE_ERROR:  // a file with another schema
      return Error::corrupt(fmt::format("{}: is not an index of this program: {}", path_, reason));
    default: return Error::internal(fmt::format("{}: {}", path_, reason));
  }
}

Result<SqliteTransaction> SqliteTransaction::begin(const SqliteDatabase& database) {
  MILLRACE_TRY_VOID(database.execute("BEGIN IMMEDIATE"));
  return SqliteTransaction(database);
}

SqliteTransaction::~SqliteTransaction() {
  if (database_) (void)database_->execute("ROLLBACK");
}

Result<void> SqliteTransaction::commit() {
  MILLRACE_TRY_VOID(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace millrace
