#include "compress/calibration/observe.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/cpu.h"
#include "compress/matrix_work.h"
#include "loader/importance_file.h"
#include "models/convert/conversion.h"
#include "models/convert/output.h"
#include "run/language_model.h"

namespace millrace {
namespace {

ImportanceEntry importance_of(const TensorWork& work, const StatisticsMap& statistics) {
  ImportanceEntry out;
  for (const LinearId& id : work.ids()) {
    const LinearStatistics& measured = statistics.at(id);
    out.counts.push_back(static_cast<float>(measured.rows));
    out.sums.insert(out.sums.end(), measured.squares.begin(), measured.squares.end());
  }
  return out;
}

}  // namespace

Result<ObserveReport> observe_model(const CompressOptions& options) {
  if (options.calibration.name.empty())
    return Error::user("--observe: needs a text whose inputs it can observe; give one with --calibrate");
  MILLRACE_TRY(const ConversionInput input, open_conversion_input(options.input, "", open_model));
  if (input.checkpoint)
    return Error::unsupported(
        fmt::format("{}: llama2.c checkpoints cannot be observed; convert it to GGUF first", options.input));
  MILLRACE_TRY_VOID(check_output(options.observe, options.force, input.paths()));
  ConvertReport ignored;
  MILLRACE_TRY(const ConversionPlan plan, plan_conversion(input, true, {}, ignored));
  MILLRACE_TRY(const std::vector<TensorWork> works, plan_works(plan, input.spec));

  LoadOptions load;
  load.threads = options.threads;
  load.context = options.calibration.context;
  load.memory = options.memory;
  MILLRACE_TRY(const std::shared_ptr<const LanguageModel> model, LanguageModel::load(options.input, load));
  const auto threads = std::make_shared<ThreadPool>(options.threads > 0 ? options.threads : available_cores());
  MILLRACE_TRY(const auto calibration, InputCalibration::create(model, threads, options.calibration));
  StatisticsMap statistics;
  int64_t bytes = 0;
  for (const TensorWork& work : works)
    for (const LinearId& id : work.ids()) {
      work.reserve(id, kInputNorms, statistics);
      bytes += work.statistics_bytes(kInputNorms);
    }
  MILLRACE_TRY(const MemoryHold hold, MemoryHold::take(model->parts().accounts, "statistics", bytes, "raise --memory"));
  MILLRACE_TRY_VOID(calibration->measure(kInputNorms, statistics, false, [&](double done) {
    if (options.progress) options.progress(done, "observing");
  }));

  ImportanceFile file;
  for (const TensorWork& work : works)
    file.entries.emplace(plan.tensors[work.tensor].name, importance_of(work, statistics));
  file.datasets = {std::filesystem::path(options.calibration.name).filename().string()};
  file.chunks = calibration->windows();
  file.chunk_size = calibration->context();
  MILLRACE_TRY_VOID(write_importance_file(file, options.observe));
  return ObserveReport{std::ssize(file.entries), calibration->tokens(), calibration->windows(), calibration->context()};
}

}  // namespace millrace
