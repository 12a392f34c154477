#include "exactness/exactness_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"

namespace millrace {
namespace {

using ReportJson = nlohmann::ordered_json;

constexpr size_t kMinColumn = 9;

// "same", "DIFFERS", "logprobs": only these differ, "failed", "-": not sent
std::string cell_text(const WayCell& cell) {
  const int64_t count = cell.same + cell.failed + std::ssize(cell.differences);
  if (count == 0) return "-";
  if (cell.differences.empty()) return cell.failed > 0 ? "failed" : "same";
  const AnswerDifference::Part worst = std::ranges::min(cell.differences, {}, &AnswerDifference::part).part;
  return worst == AnswerDifference::Part::logprobs ? "logprobs" : "DIFFERS";
}

bool all_same(const WayResult& way) {
  return std::ranges::all_of(way.cells,
                             [](const WayCell& cell) { return cell.failed == 0 && cell.differences.empty(); });
}

std::string rows_of(const ExactnessResult& result, const TableRoom& room) {
  std::vector<TableColumn> columns = {{.name = "request", .left = true, .wraps = true}};
  const int ways = static_cast<int>(result.ways.size());
  for (int i = 0; i < ways; ++i) {
    const WayResult& way = result.ways[static_cast<size_t>(i)];
    columns.push_back({.name = way.name, .left = true, .drops = all_same(way) ? ways - i : 0, .width = kMinColumn});
  }
  TextTable table(TableLook::plain, std::move(columns));
  for (size_t i = 0; i < result.probes.size(); ++i) {
    TextTable::Row row = {result.probes[i].name};
    for (const WayResult& way : result.ways) row.push_back(cell_text(way.cells[i]));
    table.add(std::move(row));
  }
  return table.text(room);
}

std::string verdict(const ExactnessResult& result) {
  const int64_t same = result.same(), different = result.different(), failed = result.failed();
  const bool logprobs = !result.reference.empty() && !result.reference.front().tokens.empty();
  std::string out = different == 0
                        ? fmt::format("{} answers, all with the same {} as the first one", same,
                                      logprobs ? "tokens, text and log-probabilities" : "text")
                        : fmt::format("{} of {} answers differ from the first one", different, same + different);
  if (failed > 0) out += fmt::format("; {} requests failed", failed);
  if (!result.complete) out += result.error ? "; stopped by an error" : "; interrupted before the end";
  return out + "\n";
}

std::string way_of(const CompletionCall& call) {
  return call.delay.count() > 0 ? fmt::format(" ({} ms later)", call.delay.count()) : "";
}

std::string companions_text(const DifferenceExample& example, const CheckedServer& server) {
  if (example.companions.empty()) return "";
  std::string out =
      example.repeats
          ? fmt::format(
                "  at the same time as {} of this kind:\n",
                example.companions.size() == 1 ? "one request" : fmt::format("{} requests", example.companions.size()))
          : "  at the same time as the whole batch; it did not differ again in three tries:\n";
  for (const CompletionCall& call : example.companions)
    out += fmt::format("    {}{}\n", curl_command(server.address, server.style, call, server.with_key),
                       call.delay.count() > 0 ? fmt::format("  # {} ms later", call.delay.count()) : "");
  return out;
}

std::string example_text(const WayResult& way, const ExactnessResult& result, const CheckedServer& server) {
  const DifferenceExample& example = *way.example;
  const auto curl = [&](const CompletionCall& call) {
    return curl_command(server.address, server.style, call, server.with_key);
  };
  std::string out = fmt::format("\n{} ({}): {}: {}\n", way.name, way.meaning, result.probes[example.probe].name,
                                example.difference.words());
  out += fmt::format("  first, alone:\n    {}\n    {}\n", curl(example.reference_call),
                     describe_place(example.expected, example.difference));
  const std::string again = curl(example.call);
  out += fmt::format("  then{}:\n    {}\n    {}\n", way_of(example.call),
                     again == curl(example.reference_call) ? "the same request" : again,
                     describe_place(example.got, example.difference));
  return out + companions_text(example, server);
}

ReportJson answer_json(const CompletionAnswer& answer) {
  ReportJson tokens = ReportJson::array();
  for (const AnsweredToken& token : answer.tokens) {
    ReportJson top = ReportJson::array();
    for (const auto& [text, logprob] : token.top) top.push_back({{"token", text}, {"logprob", logprob}});
    tokens.push_back({{"token", token.text},
                      {"logprob", token.logprob ? ReportJson(*token.logprob) : ReportJson()},
                      {"top", std::move(top)}});
  }
  return {{"text", answer.text},
          {"reasoning", answer.reasoning},
          {"finish_reason", answer.finish},
          {"tokens", std::move(tokens)}};
}

ReportJson cell_json(const WayCell& cell) {
  ReportJson differences = ReportJson::array();
  for (const AnswerDifference& difference : cell.differences) differences.push_back(difference.words());
  return {{"same", cell.same}, {"failed", cell.failed}, {"differences", std::move(differences)}};
}

ReportJson example_json(const DifferenceExample& example, const CheckedServer& server) {
  const auto body = [&](const CompletionCall& call) { return parse_json(call_body(server.style, call)); };
  ReportJson companions = ReportJson::array();
  for (const CompletionCall& call : example.companions)
    companions.push_back({{"delay_ms", call.delay.count()}, {"body", body(call)}});
  return {{"request", example.probe},
          {"difference", example.difference.words()},
          {"place", example.difference.place},
          {"first_body", body(example.reference_call)},
          {"first_answer", answer_json(example.expected)},
          {"delay_ms", example.call.delay.count()},
          {"body", body(example.call)},
          {"answer", answer_json(example.got)},
          {"companions", std::move(companions)},
          {"repeats", example.repeats}};
}

}  // namespace

std::string exactness_table(const ExactnessResult& result, const CheckedServer& server, const TableRoom& room) {
  std::string out = rows_of(result, room) + verdict(result);
  for (const WayResult& way : result.ways)
    if (way.example) out += example_text(way, result, server);
  for (const WayResult& way : result.ways)
    if (!way.failure.empty()) out += fmt::format("\n{}: failed: {}\n", way.name, way.failure);
  if (!result.notes.empty()) out += '\n';
  for (const std::string& note : result.notes) out += fmt::format("note: {}\n", note);
  return out;
}

ReportJson exactness_json(const ExactnessResult& result, const CheckedServer& server) {
  ReportJson requests = ReportJson::array(), ways = ReportJson::array();
  for (size_t i = 0; i < result.probes.size(); ++i)
    requests.push_back({{"name", result.probes[i].name},
                        {"body", parse_json(call_body(server.style, result.probes[i].call))},
                        {"answer", answer_json(result.reference[i])}});
  for (const WayResult& way : result.ways) {
    ReportJson cells = ReportJson::array();
    for (const WayCell& cell : way.cells) cells.push_back(cell_json(cell));
    ways.push_back({{"name", way.name},
                    {"meaning", way.meaning},
                    {"cached_tokens", way.cached_tokens < 0 ? ReportJson() : ReportJson(way.cached_tokens)},
                    {"requests", std::move(cells)},
                    {"example", way.example ? example_json(*way.example, server) : ReportJson()},
                    {"failure", way.failure.empty() ? ReportJson() : ReportJson(way.failure)}});
  }
  return {{"url", server.address},       {"api", completion_path(server.style.api)}, {"model", server.style.model},
          {"same", result.same()},       {"different", result.different()},          {"failed", result.failed()},
          {"complete", result.complete}, {"requests", std::move(requests)},          {"ways", std::move(ways)},
          {"notes", result.notes}};
}

}  // namespace millrace
