// TextTable: a table of text that fits a terminal. If it is wider than the terminal, cells of columns that wrap are
// broken at words; if that is not enough, columns are dropped in the order that the caller states, and a last line
// names them. Not thread-safe.
//
//     TextTable table(TableLook::plain, {{.name = "NAME", .left = true}, {.name = "SIZE", .drops = 1}});
//     table.add({"lab", "4.4 MB"});
//     print(table.text({.columns = terminal_columns(), .more = "--wide or --json"}));
//
// A table whose rows arrive one by one states the widths of its columns: head(), then line() for every row.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace {

struct TableColumn {
  std::string name;
  bool left = false;   // text; numbers are aligned on the right
  int drops = 0;       // the lowest number above 0 is dropped first; 0: never dropped
  bool wraps = false;  // cells may be broken at words
  size_t width = 0;    // columns at least
};

enum class TableLook { plain, markdown };  // two blanks between columns; bars and a line below the head

// Returns the names of the columns in the order in which a narrow terminal drops them: "SIZE, CONTEXT".
std::string drop_order(const std::vector<TableColumn>& columns);

struct TableRoom {
  size_t columns = 0;  // width of the terminal; 0: no limit
  std::string more;    // flags that show dropped columns: "--wide or --json"
};

class TextTable {
 public:
  using Row = std::vector<std::string>;

  TextTable(TableLook look, std::vector<TableColumn> columns);

  // `row`: one cell for every column.
  void add(Row row) { rows_.push_back(std::move(row)); }

  // Returns the whole table.
  std::string text(const TableRoom& room);

  // Chooses the columns by their widths alone, and returns the head.
  std::string head(const TableRoom& room);
  // Returns one row of a table whose head() was called.
  std::string line(const Row& row) const;
  // Returns the line that names the dropped columns; "": all are shown.
  std::string dropped_text(const TableRoom& room) const;

 private:
  void fit(size_t room);
  size_t total_width() const;
  bool narrow_text_columns(size_t room);
  std::string heading() const;

  TableLook look_;
  std::vector<TableColumn> columns_;
  std::vector<Row> rows_;
  std::vector<size_t> widths_;  // one for every column, with those that are not shown
  std::vector<size_t> shown_, dropped_;
};

}  // namespace millrace
