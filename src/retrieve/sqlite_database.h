// SqliteDatabase, SqliteStatement: SQLite with errors as values. One connection in WAL mode: readers go on while one
// process writes, and a transaction is in the file completely or not at all, even after a crash.
//
//   MILLRACE_TRY(auto statement, database->prepare("SELECT path FROM documents WHERE id = ?1"));
//   statement.bind(1, id);
//   MILLRACE_TRY(const bool found, statement.step());
//   if (found) path = statement.text(0);
//
// The file may be foreign: its schema is not trusted, and callers check every size that they read. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace millrace {

class SqliteDatabase;

class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Parameters are counted from 1. Bytes are copied.
  SqliteStatement& bind(int parameter, int64_t value);
  SqliteStatement& bind(int parameter, std::string_view text);
  SqliteStatement& bind_bytes(int parameter, std::span<const char> bytes);

  // Returns true if there is a row. Errors: those of SqliteDatabase.
  Result<bool> step();
  // Runs a statement without rows, and makes it ready for other parameters.
  Result<void> run();
  void reset();

  // Columns of the current row, counted from 0; views are valid until the next step.
  int64_t integer(int column) const;
  double number(int column) const;
  std::string_view text(int column) const;
  std::span<const char> bytes(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(const SqliteDatabase& database, sqlite3_stmt* statement)
      : database_(&database), statement_(statement) {}

  const SqliteDatabase* database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;  // first error of bind(); 0: none
};

class SqliteDatabase {
 public:
  // `create`: create the file if it does not exist. Errors: user (no such file, or not writable), corrupt (not a
  // database), resource.
  static Result<std::unique_ptr<SqliteDatabase>> open(const std::string& path, bool create);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;

  Result<SqliteStatement> prepare(std::string_view sql) const;
  // Runs statements without parameters.
  Result<void> execute(const std::string& sql) const;
  int64_t last_id() const;

  // Describes an error code of SQLite. Kinds: resource (another process writes; no space on the disk; no memory),
  // corrupt (a damaged file), user (not writable), internal.
  Error error(int code) const;

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  const std::string path_;
  sqlite3* const handle_;
};

// Begins a write transaction; the destructor rolls it back unless commit() succeeded.
class SqliteTransaction {
 public:
  static Result<SqliteTransaction> begin(const SqliteDatabase& database);
  SqliteTransaction(SqliteTransaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  SqliteTransaction& operator=(SqliteTransaction&&) = delete;
  ~SqliteTransaction();
  Result<void> commit();

 private:
  explicit SqliteTransaction(const SqliteDatabase& database) : database_(&database) {}
  const SqliteDatabase* database_;  // null: over
};

}  // namespace millrace
