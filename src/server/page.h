// The files of the page, built from web/ and linked into the binary; none where it was built without them.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "server/http/http.h"

namespace millrace {

struct PageFile {
  const char* path;  // "/assets/index-1a2b3c.js"; the page itself is "/"
  const char* content_type;
  const char* etag;  // with its quotes; the same for all encodings
  std::span<const unsigned char> plain, gzip, brotli;
};

// Generated: cmake/EmbedPage.cmake.
std::span<const PageFile> page_files();

// One of them, encoded as the request takes it, or 304. Nothing: there is no such file.
std::optional<HttpReply> page_file_reply(const std::string& path, const HttpRequest& request);

// For a reader at "/" who takes HTML: the page, or a text that says that it was left out. Nothing: for anybody else.
std::optional<HttpReply> page_reply(const HttpRequest& request);

// Whether that request gets the page itself, which is for everybody: it is what asks for a key.
bool asks_for_page(const HttpRequest& request);

// Of a content coding in an Accept-Encoding header; public for its test.
bool takes_coding(std::string_view header, std::string_view coding);

}  // namespace millrace
