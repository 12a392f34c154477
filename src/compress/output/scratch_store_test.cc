// What a compression stores on the disk for the time of its run: residual streams and finished tensors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "compress/output/output_store.h"
#include "compress/output/residual_store.h"

namespace millrace {
namespace {

class StoreFolder {
 public:
  StoreFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace_store_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~StoreFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  StoreFolder(const StoreFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ / name; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

TEST(ResidualStore, HasWhatWasWrittenInMemoryAndOnTheDisk) {
  const StoreFolder folder;
  for (const int64_t in_memory : {int64_t{0}, int64_t{1} << 20}) {
    auto accounts = std::make_shared<MemoryAccounts>(0);
    auto store = ResidualStore::create(3, 100, in_memory, folder / "out.gguf", accounts);
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_EQ(store->on_disk(), in_memory == 0);
    EXPECT_EQ(accounts->total(), in_memory == 0 ? 0 : 3 * 100 * 4);
    std::vector<float> rows(100), read(100);
    for (const int64_t window : {2, 0, 1, 2}) {
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(window * 1000) + static_cast<float>(i);
      ASSERT_TRUE(store->write(window, rows.data()).ok());
    }
    for (const int64_t window : {0, 1, 2}) {
      ASSERT_TRUE(store->read(window, read.data()).ok());
      EXPECT_EQ(read[0], static_cast<float>(window * 1000));
      EXPECT_EQ(read[99], static_cast<float>(window * 1000 + 99));
    }
    EXPECT_TRUE(folder.empty());  // its file has no name
  }
}

TEST(ResidualStore, SaysWhatIsWrong) {
  const StoreFolder folder;
  auto none = ResidualStore::create(1, 8, 0, folder / "no/such/folder/out.gguf", nullptr);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::resource);
  EXPECT_NE(none.error().message.find("out.gguf.scratch: cannot create: "), std::string::npos) << none.error().message;
  auto store = ResidualStore::create(2, 8, 0, folder / "out.gguf", nullptr);
  ASSERT_TRUE(store.ok());
  std::vector<float> rows(8);
  ASSERT_TRUE(store->write(0, rows.data()).ok());
  EXPECT_FALSE(store->read(1, rows.data()).ok());  // it was never written
  auto little = ResidualStore::create(1, 8, 1 << 20, folder / "out.gguf", std::make_shared<MemoryAccounts>(16));
  EXPECT_FALSE(little.ok());
}

TEST(OutputStore, KeepsTensorsInMemoryAndOnTheDisk) {
  const StoreFolder folder;
  for (const bool disk : {false, true}) {
    OutputStore store;
    if (disk) {
      ASSERT_TRUE(store.use_disk(folder / "out.gguf").ok());
    }
    auto first = store.keep({1, 2, 3}), none = store.keep({}), second = store.keep({4, 5});
    ASSERT_TRUE(first.ok() && none.ok() && second.ok());
    EXPECT_EQ(first->memory.empty(), disk);
    EXPECT_EQ(none->size, 0);
    std::vector<uint8_t> read(3);
    ASSERT_TRUE(store.copy(*second, read.data()).ok());
    EXPECT_EQ(read, (std::vector<uint8_t>{4, 5, 0}));
    ASSERT_TRUE(store.copy(*first, read.data()).ok());
    EXPECT_EQ(read, (std::vector<uint8_t>{1, 2, 3}));
    EXPECT_TRUE(folder.empty());
  }
}

}  // namespace
}  // namespace millrace
