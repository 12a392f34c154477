// RECOMP's abstractive compressor (Xu et al., 2023, RECOMP: Improving Retrieval-Augmented LMs with Compression and
// Selective Augmentation): a model that the user names reads the documents and the question, and its summary takes the
// documents' place. The paper trains a small T5 for this; here any model that follows instructions writes it.
//
//   prompt      document 1, document 2, ...  question
//   summarizer  documents, instruction, question -> summary, at most as many tokens as may remain
//   result      summary  question
#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

class RecompAbstractive final : public CompressorWithOptions {
 public:
  RecompAbstractive(CompressionOptions options, std::string instruction)
      : CompressorWithOptions(std::move(options)), instruction_(std::move(instruction)) {}

  PromptNeeds needs() const override { return kNeedsAnswers; }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    if (task.keep == task.droppable) return PromptRest{remaining(std::vector<char>(prompt.tokens.size()))};
    std::string summary;
    if (task.keep > 0) {
      MILLRACE_TRY(summary, scores.answer(options_.model, message(prompt, task), task.keep));
    }
    return with_summary(prompt, task, summary);
  }

 private:
  std::string message(const PromptView& prompt, const CompressionTask& task) const {
    std::string out;
    for (size_t i = 0; i < prompt.texts.size(); ++i)
      if (!task.fixed[i]) out += prompt.texts[i];
    if (!out.ends_with('\n')) out += '\n';
    if (!instruction_.empty()) out += instruction_ + "\n";
    for (int64_t i = task.question.first; i < task.question.first + task.question.count; ++i)
      out += prompt.texts[static_cast<size_t>(i)];
    return out;
  }

  // The summary takes the place of the first text that may be dropped, and ends with a line break.
  static PromptRest with_summary(const PromptView& prompt, const CompressionTask& task, std::string summary) {
    PromptRest out;
    while (summary.ends_with('\n')) summary.pop_back();
    if (!summary.empty() && prompt.tokenizer)
      out.written = prompt.tokenizer->encode(summary + "\n", {.add_special = false, .parse_special = false});
    if (std::ssize(out.written) > task.keep) out.written.resize(static_cast<size_t>(task.keep));
    bool placed = false;
    for (size_t i = 0; i < task.fixed.size(); ++i) {
      if (task.fixed[i]) {
        out.kept.push_back(static_cast<int64_t>(i));
      } else if (!placed) {
        out.kept.insert(out.kept.end(), out.written.size(), kWrittenToken);
        placed = true;
      }
    }
    if (out.kept.empty()) out.kept.push_back(0);  // a prompt is never empty
    return out;
  }

  const std::string instruction_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_recomp_abstractive(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  if (shared.model.empty()) return Error::user("model: name the file of the model that writes the summary");
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<RecompAbstractive>(std::move(shared), options.text("instruction")));
}

}  // namespace millrace
