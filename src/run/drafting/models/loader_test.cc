// Every drafter with a model names a loader.
#include "run/drafting/models/loader.h"

#include <gtest/gtest.h>

#include <map>

#include "test_paths.h"

namespace millrace {
namespace {

// The loader of each drafter; drafters of text have none.
TEST(DraftModelLoaders, AreNamedByTheDrafters) {
  const std::map<std::string, std::string> named = {
      {"draft", "draft"},       {"cascade", "draft"},      {"staged", "draft"},
      {"self", "self"},         {"medusa", "medusa"},      {"eagle", "eagle"},
      {"mtp", "mtp"},           {"pass", "pass"},          {"kangaroo", "kangaroo"},
      {"longspec", "longspec"}, {"layerskip", "layerskip"}};
  size_t found = 0;
  for (const auto& entry : drafters().entries()) {
    auto made = make_drafter(entry.info.name);
    if (!made.ok()) made = make_drafter(entry.info.name + ":model=FOLDER");
    if (!made.ok()) continue;  // rest needs a file
    const DraftModelLoader* loader = draft_model_loader(made->get());
    EXPECT_EQ(loader != nullptr, (*made)->model.has_value()) << entry.info.name;
    if (!loader) continue;
    ++found;
    ASSERT_TRUE(named.contains(entry.info.name)) << "a drafter that this table lacks: " << entry.info.name;
    EXPECT_EQ(loader->name, named.at(entry.info.name));
    EXPECT_EQ(loader->hidden_rows && !loader->hidden_states, false);
  }
  EXPECT_EQ(found, named.size());
  EXPECT_EQ(draft_model_loader(nullptr), nullptr);
}

TEST(DraftModelLoaders, AnUnknownOneIsAnError) {
  const auto model =
      LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf", {.threads = 1}).value();
  const auto loaded = load_draft_model({"unknown", {}}, {*model, model->parts().threads->get(1), 64});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind, ErrorKind::internal);
  EXPECT_EQ(loaded.error().message, "drafter: there is no loader 'unknown' of draft models");
}

}  // namespace
}  // namespace millrace
