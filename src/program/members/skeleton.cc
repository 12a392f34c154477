// Skeleton-of-Thought (Ning et al., 2024): the model first lists the points of its answer, then writes all of them at
// the same time, each in a branch of its own.
#include "program/members/factories.h"
#include "program/members/skeleton_steps.h"

namespace millrace {
namespace {

class Skeleton final : public ProgramMember {
 public:
  explicit Skeleton(SkeletonOptions options) : options_(options) {}

  Program program(const ProgramQuestion& question) const override {
    ProgramBuilder build;
    build.seed(question.seed).messages(skeleton_messages(options_, question));
    add_skeleton_steps(options_, question, build);
    build.output("{skeleton_answer}");
    return build.take();
  }

 private:
  const SkeletonOptions options_;
};

}  // namespace

Result<std::unique_ptr<ProgramMember>> make_skeleton(const OptionValues& options) {
  MILLRACE_TRY(const auto read, SkeletonOptions::read(options));
  return std::unique_ptr<ProgramMember>(std::make_unique<Skeleton>(read));
}

}  // namespace millrace
