#include "compress_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "terminal/display_width.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

double bits_of(const CompressedMatrix& matrix) {
  return 8 * static_cast<double>(matrix.bytes) / static_cast<double>(matrix.rows * matrix.cols);
}

Json row_json(Json out, const PassRow& row) {
  out["action"] = row.action;
  if (!row.why.empty()) out["why"] = row.why;
  for (const auto& [name, value] : row.figures) out[name] = value;
  return out;
}

Json matrix_json(const CompressedMatrix& matrix, bool dry_run) {
  Json out = {{"name", matrix.name},     {"rows", matrix.rows},   {"cols", matrix.cols},
              {"format", matrix.format}, {"bytes", matrix.bytes}, {"bits_per_weight", bits_of(matrix)}};
  if (dry_run) {
    out["estimated"] = matrix.estimated;
  } else {
    out["zeros"] = matrix.zeros;
    out["calibration_rows"] = matrix.calibration_rows;
    out["weighted_error"] = matrix.weighted_error;
  }
  const auto add = [&](const char* name, double error) {
    if (error >= 0) out[name] = error;
  };
  add("output_error", matrix.output_error);
  add("rounded_output_error", matrix.rounded_output_error);
  add("held_out_error", matrix.held_out_error);
  add("rounded_held_out_error", matrix.rounded_held_out_error);
  out["passes"] = Json::array();
  for (const auto& [text, row] : matrix.passes) out["passes"].push_back(row_json({{"pass", text}}, row));
  return out;
}

// Tokens per second.
Json rates_json(const std::vector<double>& rates) {
  return {{"median", median_of(rates)}, {"lowest", std::ranges::min(rates)}, {"highest", std::ranges::max(rates)}};
}

Json speed_json(const SpeedComparison& speed) {
  return {{"threads", speed.threads},
          {"rounds", speed.after.decode.size()},
          {"prompt_tokens", speed.prompt},
          {"generated_tokens", speed.generate},
          {"prefill_tokens_per_s", rates_json(speed.after.prefill)},
          {"decode_tokens_per_s", rates_json(speed.after.decode)},
          {"reference_prefill_tokens_per_s", rates_json(speed.before.prefill)},
          {"reference_decode_tokens_per_s", rates_json(speed.before.decode)}};
}

Json evaluation_json(const CompressEvaluation& evaluation) {
  const ModelDivergence& found = evaluation.found;
  return {{"text", evaluation.text},
          {"tokens", found.tokens},
          {"perplexity", found.perplexity},
          {"reference_perplexity", found.reference_perplexity},
          {"kl_divergence", found.divergence.kl_mean},
          {"kl_divergence_p99", found.divergence.kl_p99},
          {"same_top", found.divergence.same_top},
          {"speed_on_this_machine", speed_json(evaluation.speed)}};
}

class ReportText {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  // Returns the text with every line that is longer than `columns` broken at words; 0: no limit.
  std::string take(size_t columns) const {
    std::string out;
    for (size_t at = 0, end; at < text_.size(); at = end + 1) {
      end = std::min(text_.find('\n', at), text_.size());
      out += hanging_text(std::string_view(text_).substr(at, end - at), 0, columns) + "\n";
    }
    return out;
  }

 private:
  std::string text_;
};

std::string why_left(const CompressedMatrix& matrix) {
  std::string out;
  for (const auto& [text, row] : matrix.passes)
    if (row.action == "left") out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", text, row.why);
  return out;
}

std::string size_of(const CompressedMatrix& matrix) { return fmt::format("{} x {}", matrix.rows, matrix.cols); }

std::vector<TableColumn> planned_columns() {
  return {{.name = "matrix", .left = true, .wraps = true, .width = 24},
          {.name = "size", .drops = 2},
          {.name = "format", .drops = 3},
          {.name = "bits"},
          {.name = "bytes", .drops = 1},
          {.name = "passes", .left = true, .wraps = true}};
}

std::vector<TableColumn> done_columns() {
  return {{.name = "matrix", .left = true, .wraps = true, .width = 24},
          {.name = "size", .drops = 1},
          {.name = "format", .drops = 4},
          {.name = "bits"},
          {.name = "zeros", .drops = 2},
          {.name = "error"},
          {.name = "rounding", .drops = 3},
          {.name = "left by", .left = true, .wraps = true}};
}

// What a dry run says of each matrix.
void add_planned(const CompressReport& report, const TableRoom& room, ReportText& out) {
  TextTable table(TableLook::plain, planned_columns());
  for (const CompressedMatrix& matrix : report.matrices) {
    std::string passes;
    for (const auto& [text, row] : matrix.passes)
      passes += fmt::format("{}{}: {}{}{}{}", passes.empty() ? "" : "; ", text, row.action, row.why.empty() ? "" : " (",
                            row.why, row.why.empty() ? "" : ")");
    table.add({matrix.name, size_of(matrix), std::string(matrix.format), fmt::format("{:.3f}", bits_of(matrix)),
               fmt::format("{}{}", matrix.estimated ? "about " : "", matrix.bytes), passes});
  }
  out.add("{}", table.text(room));
}

// Adds the bytes of the embedding table, their share of the file, and the bytes that `--table same` would take.
void add_table(const CompressReport& report, ReportText& out) {
  const TableCost& table = report.table;
  if (table.name.empty()) return;
  out.add("embedding table{}: {}, {:.2f} MB, {:.1f} % of the output", table.tied ? ", which is also the head" : "",
          table.format, static_cast<double>(table.bytes) * 1e-6, 100 * report.table_share());
  if (!table.rounded_format.empty())
    out.add("; --table same stores it as {}, {:.2f} MB", table.rounded_format,
            static_cast<double>(table.rounded_bytes) * 1e-6);
  out.add("\n");
}

Json table_json(const CompressReport& report) {
  const TableCost& table = report.table;
  Json out = {{"name", table.name},
              {"format", table.format},
              {"bytes", table.bytes},
              {"share", report.table_share()},
              {"tied", table.tied}};
  if (!table.rounded_format.empty()) out["same"] = {{"format", table.rounded_format}, {"bytes", table.rounded_bytes}};
  return out;
}

void add_done(const CompressReport& report, const TableRoom& room, ReportText& out) {
  const bool held_out = report.held_out_windows > 0;
  if (held_out) out.add("errors are those on {} tokens that the passes did not see\n", report.held_out_tokens);
  std::vector<TableColumn> columns = done_columns();
  const bool any_left =
      std::ranges::any_of(report.matrices, [](const CompressedMatrix& matrix) { return !why_left(matrix).empty(); });
  if (!any_left) columns.pop_back();
  TextTable table(TableLook::plain, std::move(columns));
  for (const CompressedMatrix& matrix : report.matrices) {
    const double error = held_out ? matrix.held_out_error : matrix.output_error;
    const double rounding = held_out ? matrix.rounded_held_out_error : matrix.rounded_output_error;
    TextTable::Row row = {matrix.name,
                          size_of(matrix),
                          std::string(matrix.format),
                          fmt::format("{:.3f}", bits_of(matrix)),
                          fmt::format("{:.1f}%", 100 * matrix.zeros),
                          fmt::format("{:.3e}", error >= 0 ? error : matrix.weighted_error),
                          rounding >= 0 ? fmt::format("{:.3e}", rounding) : ""};
    if (any_left) row.push_back(why_left(matrix));
    table.add(std::move(row));
  }
  out.add("{}", table.text(room));
}

}  // namespace

Json compress_json(const CompressReport& report, const std::optional<CompressEvaluation>& evaluation) {
  Json out = {{"input", report.input},
              {"output", report.output},
              {"architecture", report.architecture},
              {"passes", report.passes},
              {"calibration", nullptr},
              {"input_bytes", report.input_bytes},
              {"output_bytes", report.output_bytes},
              {"weights", report.weights},
              {"bits_per_weight", report.bits_per_weight()}};
  if (!report.table.name.empty()) out["table"] = table_json(report);
  if (report.dry_run) out["dry_run"] = {{"estimated", report.estimated()}};
  if (!report.keep.empty()) out["keep"] = report.keep;
  if (!report.calibration_name.empty())
    out["calibration"] = {{"text", report.calibration_name},       {"xxh3_128", report.calibration_hash},
                          {"tokens", report.calibration_tokens},   {"windows", report.calibration_windows},
                          {"context", report.calibration_context}, {"ranges", report.ranges}};
  if (report.held_out_windows > 0)
    out["held_out"] = {{"tokens", report.held_out_tokens}, {"windows", report.held_out_windows}};
  if (report.resumed_blocks > 0) out["resumed_blocks"] = report.resumed_blocks;
  if (evaluation) out["evaluation"] = evaluation_json(*evaluation);
  out["matrices"] = Json::array();
  for (const CompressedMatrix& matrix : report.matrices) out["matrices"].push_back(matrix_json(matrix, report.dry_run));
  if (!report.structure.empty()) {
    out["structure"] = Json::array();
    for (const auto& [name, row] : report.structure) out["structure"].push_back(row_json({{"name", name}}, row));
  }
  out["notes"] = report.notes;
  if (!report.idle.empty()) out["idle_passes"] = report.idle;
  out["memory"] = Json::object();
  for (const MemoryAccount& account : report.memory) out["memory"][account.name] = account.peak;
  return out;
}

std::string compress_drop_order() {
  return drop_order(done_columns()) + "; and of a dry run: " + drop_order(planned_columns());
}

std::string compress_text(const CompressReport& report, const std::optional<CompressEvaluation>& evaluation,
                          const TableRoom& room) {
  ReportText out;
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  out.add("{}{}: {} from {}, {}{:.1f} MB of tensors, {:.3f} bits a weight, before {:.1f} MB\n",
          report.dry_run ? "dry run, nothing is written: " : "", report.output, report.architecture, report.input,
          report.estimated() ? "about " : "", megabytes(report.output_bytes), report.bits_per_weight(),
          megabytes(report.input_bytes));
  if (!report.calibration_name.empty())
    out.add("calibrated with {}: {} tokens in windows of {}, layers measured in {} range{}\n", report.calibration_name,
            report.calibration_tokens, report.calibration_context, report.ranges, report.ranges == 1 ? "" : "s");
  if (report.resumed_blocks > 0) out.add("{} blocks were done before\n", report.resumed_blocks);
  for (const auto& [name, row] : report.structure) {
    out.add("{}: {}{}{}", name, row.action, row.why.empty() ? "" : " ", row.why);
    for (const auto& [key, value] : row.figures) out.add(", {} {:.4g}", key, value);
    out.add("\n");
  }
  add_table(report, out);
  if (!report.matrices.empty()) report.dry_run ? add_planned(report, room, out) : add_done(report, room, out);
  if (evaluation) {
    const ModelDivergence& found = evaluation->found;
    out.add(
        "{}, {} tokens: perplexity {:.4f}, before {:.4f}; KL divergence {:.6f}, the same most likely token for "
        "{:.2f} %\n",
        evaluation->text, found.tokens, found.perplexity, found.reference_perplexity, found.divergence.kl_mean,
        100 * found.divergence.same_top);
    const SpeedComparison& speed = evaluation->speed;
    out.add(
        "on this machine, {} thread{}, median of {} rounds in turns: prefill of {} tokens {:.0f} tokens/s, before "
        "{:.0f}; "
        "decode {:.0f} tokens/s, before {:.0f}\n",
        speed.threads, speed.threads == 1 ? "" : "s", speed.after.decode.size(), speed.prompt,
        median_of(speed.after.prefill), median_of(speed.before.prefill), median_of(speed.after.decode),
        median_of(speed.before.decode));
  }
  for (const std::string& note : report.notes) out.add("note: {}\n", note);
  for (const std::string& pass : report.idle) out.add("{}\n", pass);
  return out.take(room.columns);
}

}  // namespace millrace
