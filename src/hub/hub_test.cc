#include <gtest/gtest.h>

#include <cstdlib>

#include "hub/file_choice.h"
#include "hub/hub_cache.h"
#include "hub/repository.h"

namespace millrace {
namespace {

using Names = std::vector<std::string>;

TEST(HubName, ParsesOwnerNameAndFile) {
  auto name = parse_hub_name("hf:Qwen/Qwen3-0.6B-GGUF:Q8_0");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->repository, "Qwen/Qwen3-0.6B-GGUF");
  EXPECT_EQ(name->wanted, "Q8_0");
  EXPECT_TRUE(parse_hub_name("a/b").ok());
  EXPECT_EQ(parse_hub_name("a/b:sub/x.gguf")->wanted, "sub/x.gguf");
  for (const char* bad : {"", "a", "a/", "/b", "a/b/c", "../b", "a/..", "a/b:", "a/b:../x", "a/b:/etc/passwd", "a b/c",
                          "a/b:x\\y", "a--b/c", ".a/b", "a/b\n"})
    EXPECT_FALSE(parse_hub_name(bad).ok()) << bad;
}

TEST(HubCache, RejectsPathsOutsideTheFolder) {
  for (const char* good : {"a", "a/b.gguf", "a..b", "...", "ä"}) EXPECT_TRUE(is_safe_path(good)) << good;
  for (const char* bad : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\\b", "a\nb"})
    EXPECT_FALSE(is_safe_path(bad)) << bad;
  EXPECT_FALSE(is_safe_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_path(std::string(1025, 'a')));
  EXPECT_EQ(HubCache("/c").blob("o/n", "ff").string(), "/c/models--o--n/blobs/ff");
}

TEST(FileChoice, QuantizationsFilesAndFolders) {
  const Names all = {"README.md",
                     "m-IQ4_K_M.gguf",
                     "m-Q4_K_M.gguf",
                     "m-Q8_0.gguf",
                     "mmproj-Q8_0.gguf",
                     "Q6_K/m-Q6_K-00001-of-00002.gguf",
                     "Q6_K/m-Q6_K-00002-of-00002.gguf"};
  EXPECT_EQ(choose_files(all, "")->main, "m-Q4_K_M.gguf");
  EXPECT_EQ(choose_files(all, "q8_0")->files, Names{"m-Q8_0.gguf"});
  EXPECT_EQ(choose_files(all, "m-IQ4_K_M.gguf")->main, "m-IQ4_K_M.gguf");
  EXPECT_EQ(choose_files(all, "Q6_K")->files,
            (Names{"Q6_K/m-Q6_K-00001-of-00002.gguf", "Q6_K/m-Q6_K-00002-of-00002.gguf"}));
  EXPECT_EQ(choose_files(all, "Q6_K/m-Q6_K-00002-of-00002.gguf")->main, "Q6_K/m-Q6_K-00001-of-00002.gguf");
  auto none = choose_files(all, "Q2_K");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("m-Q4_K_M.gguf"), std::string::npos);
  EXPECT_EQ(choose_files({"z.gguf", "b.gguf"}, "")->main, "b.gguf");
  const auto folder = choose_files(
      {"config.json", "model-1.safetensors", "model-2.safetensors", "model.safetensors", "model.safetensors.index.json",
       "tokenizer.json", "consolidated.safetensors", "original/x.safetensors", "pytorch_model.bin", "README.md"},
      "");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->main, "");
  EXPECT_EQ(folder->files, (Names{"config.json", "model-1.safetensors", "model-2.safetensors",
                                  "model.safetensors.index.json", "tokenizer.json"}));
  EXPECT_FALSE(choose_files({"README.md"}, "").ok());
  EXPECT_FALSE(choose_files({"model.safetensors"}, "").ok());
}

TEST(HubUrl, PartsAndRedirects) {
  auto url = parse_hub_url("https://hub.example:8443/a/b?c=d#e");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->origin(), "https://hub.example:8443");
  EXPECT_EQ(url->target, "/a/b?c=d");
  EXPECT_EQ(parse_hub_url("http://[::1]/")->host, "::1");
  for (const char* host : {"[[1]", "[1]", "[::1", "::1]", "[]", "a[b]", "[::g]", "0z:"})
    EXPECT_FALSE(parse_hub_url(std::string("https://") + host + ":8/").ok()) << host;
  EXPECT_EQ(parse_hub_url("http://h?x")->target, "/?x");
  EXPECT_EQ(redirect_url(*url, "/z")->text(), "https://hub.example:8443/z");
  EXPECT_EQ(redirect_url(*url, "z?y")->text(), "https://hub.example:8443/a/z?y");
  EXPECT_EQ(redirect_url(*url, "//other/z")->text(), "https://other:443/z");
  EXPECT_FALSE(redirect_url(*url, "http://hub.example/z").ok()) << "from https to http";
  for (const char* bad : {"", "ftp://a", "http://", "http:///x", "http://a:b/", "http://a:/", "http://u:p@a/",
                          "http://a b/", "http://a/\r\nX: y", "http://[]/"})
    EXPECT_FALSE(parse_hub_url(bad).ok()) << bad;
}

TEST(Repository, RejectsInvalidFileLists) {
  const std::string commit(40, 'a'), sha(64, 'b');
  const auto list = [&](const std::string& file) {
    return parse_repository(R"({"sha": ")" + commit + R"(", "siblings": [)" + file + "]}");
  };
  auto good = list(R"({"rfilename": "m.gguf", "size": 3, "blobId": ")" + commit + R"(", "lfs": {"sha256": ")" + sha +
                   R"(", "size": 9}})");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->files[0].hash, sha);
  EXPECT_EQ(good->files[0].size, 9);
  const std::string rest = R"(", "size": 3, "blobId": ")" + commit + "\"}";
  EXPECT_TRUE(list(R"({"rfilename": "a/b)" + rest).ok());
  for (const char* name : {"../x", "/etc/passwd", "a/../../b", "", "a\\\\b"})
    EXPECT_FALSE(list(R"({"rfilename": ")" + std::string(name) + rest).ok()) << name;
  EXPECT_FALSE(list(R"({"rfilename": "a", "size": -1, "blobId": ")" + commit + "\"}").ok());
  EXPECT_FALSE(list(R"({"rfilename": "a", "size": 18446744073709551615, "blobId": ")" + commit + "\"}").ok());
  EXPECT_FALSE(list(R"({"rfilename": "a", "size": 3, "blobId": "../../x"})").ok());
  EXPECT_FALSE(list("3").ok());
  EXPECT_FALSE(parse_repository("[]").ok());
  EXPECT_FALSE(parse_repository(R"({"sha": "main", "siblings": []})").ok());
  EXPECT_EQ(in_url("a b/ü+"), "a%20b/%C3%BC%2B");
}

}  // namespace
}  // namespace millrace
