// The files of the web page, built from web/ and embedded in the binary; empty in builds without the page.
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

// A page file in an encoding that the request accepts, or 304. nullopt: no such file.
std::optional<HttpReply> page_file_reply(const std::string& path, const HttpRequest& request);

// For a request to "/" that accepts HTML: the page, or a text saying that the build has none. Otherwise nullopt.
std::optional<HttpReply> page_reply(const HttpRequest& request);

// Returns true if the request is for the page itself. It needs no key, because the page is where the user enters one.
bool asks_for_page(const HttpRequest& request);

// Returns true if an Accept-Encoding header accepts a content coding; public for its test.
bool takes_coding(std::string_view header, std::string_view coding);

}  // namespace millrace
