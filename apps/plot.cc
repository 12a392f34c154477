// millrace plot: draws columns of a CSV file as curves.
#include <fmt/format.h>

#include <filesystem>

#include "command.h"
#include "csv_rows.h"
#include "picture_flags.h"

namespace millrace {
namespace {

constexpr const char* kPlotExamples = R"(Examples:
  millrace plot loss.csv --x tokens --y train_loss,held_out_loss --picture loss.svg
  millrace plot loss.csv --x tokens --x-scale 1e-6 --x-title "tokens seen, million" --y loss --picture loss.pdf

The file has a line of column names, and fields that are separated by commas. An empty field is no point.)";

struct PlotFlags {
  std::string file, x, title, x_title, y_title;
  std::vector<std::string> y;
  double x_scale = 1, low = 0, high = 0;
  CLI::Option *low_given = nullptr, *high_given = nullptr;
  PictureFlags picture;
};

Result<ChartSeries> curve_of(const std::vector<CsvRow>& rows, const PlotFlags& flags, const std::string& column) {
  ChartSeries out{.name = column};
  for (const CsvRow& row : rows) {
    const auto field = row.find(column);
    if (field != row.end() && field->second.empty()) continue;
    MILLRACE_TRY(const double x, csv_number(row, flags.x, flags.file));
    MILLRACE_TRY(const double y, csv_number(row, column, flags.file));
    out.points.push_back({{x * flags.x_scale}, {y}, ""});
  }
  return out;
}

Result<int> plot(const PlotFlags& flags) {
  if (!flags.picture.wanted()) return Error::user("plot: needs --picture, the file to draw");
  MILLRACE_TRY_VOID(flags.picture.check());
  MILLRACE_TRY(const auto rows, read_csv_rows(flags.file));
  if (rows.empty()) return Error::corrupt(fmt::format("{}: has no rows", flags.file));
  ChartPanel panel{.names = SeriesNames::at_line_ends};
  panel.x = {
      .title = flags.x_title.empty() ? flags.x : flags.x_title, .scaling = AxisScaling::linear, .from_zero = true};
  panel.y = {.title = flags.y_title, .scaling = AxisScaling::linear};
  if (flags.low_given->count() > 0) panel.y.low = flags.low;
  if (flags.high_given->count() > 0) panel.y.high = flags.high;
  for (const std::string& column : flags.y) {
    MILLRACE_TRY(ChartSeries curve, curve_of(rows, flags, column));
    curve.sign = static_cast<int>(panel.series.size());
    panel.series.push_back(std::move(curve));
  }
  Chart chart{.title = flags.title.empty() ? std::filesystem::path(flags.file).stem().string() : flags.title};
  chart.panels = {std::move(panel)};
  MILLRACE_TRY_VOID(flags.picture.write(chart));
  return 0;
}

}  // namespace

void add_plot_command(CLI::App& app) {
  auto flags = std::make_shared<PlotFlags>();
  CLI::App* command =
      add_command(app, "plot", "Draw columns of a CSV file as curves", kPlotExamples, [=] { return plot(*flags); });
  command->add_option("FILE", flags->file, "CSV file; -: standard input")->required();
  command->add_option("--x", flags->x, "Column of the horizontal axis")->required();
  command->add_option("--y", flags->y, "Columns to draw, separated by commas")->required()->delimiter(',');
  command->add_option("--x-scale", flags->x_scale, "Factor for the values of --x")->capture_default_str();
  command->add_option("--x-title", flags->x_title, "Title of the horizontal axis; default: the column's name");
  command->add_option("--y-title", flags->y_title, "Title of the vertical axis");
  flags->low_given = command->add_option("--low", flags->low, "Lower end of the vertical axis");
  flags->high_given = command->add_option("--high", flags->high, "Upper end of the vertical axis");
  command->add_option("--title", flags->title, "Title of the picture; default: the file's name");
  flags->picture.add_to(command, "the curves");
}

}  // namespace millrace
