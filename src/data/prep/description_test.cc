#include "prep/description.h"

#include <gtest/gtest.h>

#include "images/picture.h"
#include "prep/phash.h"

namespace yard::prep {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string value_of(const std::vector<TextField>& fields, std::string_view name) {
  for (const TextField& field : fields)
    if (field.name == name) return field.value + " <" + field.origin + ">";
  return "";
}

images::Picture half_and_half(int width, int height) {
  images::Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c) picture.pixels.push_back(x < width / 2 ? 0 : 200);
  return picture;
}

std::string block(uint32_t number, std::string_view content, int length_bytes) {
  std::string text = "\x1c\x02" + std::string(1, char(number));
  for (int i = length_bytes - 1; i >= 0; --i) text += char(content.size() >> (8 * i));
  return text.append(content);
}

std::string jpeg_with(uint32_t marker, const std::string& content) {
  const size_t size = content.size() + 2;
  return std::string("\xFF\xD8\xFF") + char(marker) + char(size >> 8) + char(size) + content +
         "\xFF\xD9";
}

// A TIFF of one directory with ASCII tags, big-endian.
std::string tiff(const std::vector<std::pair<uint32_t, std::string>>& tags) {
  const auto be = [](uint64_t value, int count) {
    std::string out;
    for (int i = count - 1; i >= 0; --i) out += char(value >> (8 * i));
    return out;
  };
  std::string head = "MM" + be(42, 2) + be(8, 4) + be(tags.size(), 2);
  std::string values;
  const size_t values_at = head.size() + 12 * tags.size() + 4;
  for (const auto& [tag, value] : tags) {
    head += be(tag, 2) + be(2, 2) + be(value.size() + 1, 4);
    if (value.size() < 4) {
      head += (value + std::string(4, '\0')).substr(0, 4);
    } else {
      head += be(values_at + values.size(), 4);
      values += value + '\0';
    }
  }
  return head + be(0, 4) + values;
}

TEST(CleanText, MakesOneLineOfValidUtf8) {
  EXPECT_EQ(clean_text(" a\r\n\tb  \xC2\xA0 c \n").text, "a b c");
  EXPECT_EQ(clean_text("\xEF\xBB\xBFgr\xC3\xBC\xC3\x9F").text, "gr\xC3\xBC\xC3\x9F");
  EXPECT_FALSE(clean_text("fine \xEF\xBF\xBD").is_repaired);
  const CleanText bad =
      clean_text(std::string_view("a\0b\xFF"
                                  "c\x01",
                                  6));
  EXPECT_EQ(bad.text,
            "ab\xEF\xBF\xBD"
            "c");
  EXPECT_TRUE(bad.is_repaired);
  EXPECT_EQ(clean_text("gr\xC3\xBC\xC3\x9F", 5).text, "gr\xC3\xBC");  // never half a character
  EXPECT_EQ(clean_text("\n \n").text, "");
}

TEST(Embedded, ReadsIptcAndExifOfAJpeg) {
  const std::string iim = block(80, "Ada", 2) + block(116, "(c) Ada", 2) + block(25, "cat", 2) +
                          block(25, "red", 2) + block(120, "A red cat", 2);
  std::string resource = std::string(
      "Photoshop 3.0\0"
      "8BIM\x04\x04\0\0",
      22);
  for (int i = 3; i >= 0; --i) resource += char(iim.size() >> (8 * i));
  const auto iptc = read_embedded(bytes_of(jpeg_with(0xED, resource + iim)));
  EXPECT_EQ(value_of(iptc, "creator"), "Ada <iptc>");
  EXPECT_EQ(value_of(iptc, "copyright"), "(c) Ada <iptc>");
  EXPECT_EQ(value_of(iptc, "keywords"), "cat, red <iptc>");
  EXPECT_EQ(value_of(iptc, "caption"), "A red cat <iptc>");

  const std::string exif =
      std::string("Exif\0\0", 6) + tiff({{0x013B, "Grace Hopper"}, {0x8298, "GH"}});
  const auto fields = read_embedded(bytes_of(jpeg_with(0xE1, exif)));
  EXPECT_EQ(value_of(fields, "creator"), "Grace Hopper <exif>");
  EXPECT_EQ(value_of(fields, "copyright"), "GH <exif>");
}

TEST(Embedded, AnyCutOrFlippedByteIsBorne) {
  const std::string exif = std::string("Exif\0\0", 6) + tiff({{0x013B, "Grace Hopper"}});
  const std::string whole = jpeg_with(0xE1, exif);
  for (size_t size = 0; size < whole.size(); ++size)
    read_embedded(bytes_of(std::string_view(whole).substr(0, size)));
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int flip : {1, 0x80, 0xFF}) {
      std::string damaged = whole;
      damaged[at] = char(damaged[at] ^ flip);
      for (const TextField& field : read_embedded(bytes_of(damaged)))
        EXPECT_EQ(clean_text(field.value).text, field.value);
    }
}

TEST(Embedded, XmpIsReadAsPropertiesListsAndAttributes) {
  const auto fields = read_xmp(R"(<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF
     xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description
     xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://creativecommons.org/ns#"
     xmpRights:WebStatement="https://example.org/l"><dc:rights><rdf:Alt>
     <rdf:li xml:lang="x-default">(c) 2026 Ada</rdf:li><rdf:li>other</rdf:li></rdf:Alt></dc:rights>
     <dc:subject><rdf:Bag><rdf:li>cat</rdf:li><rdf:li>red</rdf:li></rdf:Bag></dc:subject>
     <cc:license rdf:resource="https://creativecommons.org/licenses/by/4.0/"/>
     </rdf:Description></rdf:RDF></x:xmpmeta>)",
                               "xmp");
  EXPECT_EQ(value_of(fields, "copyright"), "(c) 2026 Ada <xmp>");
  EXPECT_EQ(value_of(fields, "keywords"), "cat, red <xmp>");
  EXPECT_EQ(value_of(fields, "licence"), "https://creativecommons.org/licenses/by/4.0/ <xmp>");
  EXPECT_EQ(value_of(fields, "licence_url"), "https://example.org/l <xmp>");
  EXPECT_TRUE(read_xmp("<not xml", "xmp").empty());
}

TEST(Sidecar, TextJsonAndXmpGiveFieldsWithTheirOrigin) {
  const auto text = read_sidecar({"a/7.txt", "a red\ncat\n"});
  EXPECT_EQ(value_of(text->texts, "caption"), "a red cat <sidecar:a/7.txt>");
  const auto json = read_sidecar(
      {"a/7.json", R"({"text": "cat", "license": "CC0", "score": 0.5, "ok": true, "list": [1]})"});
  EXPECT_EQ(value_of(json->texts, "caption"), "cat <sidecar:a/7.json>");
  EXPECT_EQ(value_of(json->texts, "licence"), "CC0 <sidecar:a/7.json>");
  EXPECT_EQ(json->values, Json({{"score", 0.5}, {"ok", true}}));
  EXPECT_EQ(read_sidecar({"a/7.json", "[1]"}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(read_sidecar({"a/7.json", "{"}).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(read_sidecar({"7.txt", "caf\xE9"})->is_repaired);
}

TEST(Measure, TellsWhatIsInThePixels) {
  const auto png = images::encode_png(half_and_half(64, 32));
  const auto measured = measure(*png, {});
  ASSERT_TRUE(measured) << measured.error().message;
  const Measures& m = measured->measures;
  EXPECT_EQ(m.size, (images::Size{64, 32}));
  EXPECT_EQ(m.format, images::Format::kPng);
  EXPECT_DOUBLE_EQ(m.entropy, 1);  // two levels, equally often
  EXPECT_DOUBLE_EQ(m.mean_colour[2], 100);
  EXPECT_DOUBLE_EQ(m.alpha_coverage, 1);
  // Two columns of 62 have a Laplacian of +200 and -200.
  EXPECT_DOUBLE_EQ(m.sharpness, 2 * 200.0 * 200.0 / 62);
  EXPECT_EQ(m.sha256.size(), 64U);
}

TEST(Measure, APictureAndItsJpegAtAnotherSizeAreNearDuplicates) {
  images::Picture large{900, 700, {}};
  for (int y = 0; y < 700; ++y)
    for (int x = 0; x < 900; ++x)
      for (const int value : {x / 4, y / 3, (x / 100 + y / 90) % 2 * 200})
        large.pixels.push_back(uint8_t(value));
  const auto png = images::encode_png(large);
  const auto jpeg = images::encode_jpeg(images::resize(large, 450, 350), 80);
  const uint64_t a = measure(*png, {})->measures.phash;
  EXPECT_LE(phash_distance(a, measure(*jpeg, {})->measures.phash), 6);
  // The JPEG of full size is decoded at half of it.
  EXPECT_LE(phash_distance(a, measure(*images::encode_jpeg(large, 90), {})->measures.phash), 2);
  EXPECT_GT(
      phash_distance(a, measure(*images::encode_png(half_and_half(90, 70)), {})->measures.phash),
      9);
}

TEST(Measure, WhatIsNoWholePictureIsTold) {
  EXPECT_EQ(measure({}, {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(measure(bytes_of("hello, this is text"), {}).error().code, Code::kInvalidArgument);
  const auto png = images::encode_png(half_and_half(64, 32));
  const auto jpeg = images::encode_jpeg(half_and_half(640, 620), 90);
  EXPECT_EQ(measure(std::span(*png).first(png->size() * 2 / 3), {}).error().code, Code::kCorrupt);
  // Also one that is decoded at half its size.
  EXPECT_EQ(measure(std::span(*jpeg).first(jpeg->size() * 2 / 3), {}).error().code, Code::kCorrupt);
  EXPECT_EQ(measure(*png, {.pixel_count_max = 1000}).error().code, Code::kExhausted);
}

TEST(Description, TheFirstValueCountsAndHasAnOrigin) {
  Description description;
  description.add("caption", "", "iptc");
  description.add("caption", "a cat", "xmp");
  description.add("caption", "a dog", "exif");
  description.set("score", 3, "step:judge");
  EXPECT_EQ(description.to_json(),
            Json({{"caption", "a cat"},
                  {"score", 3},
                  {"provenance", {{"caption", "xmp"}, {"score", "step:judge"}}}}));
}

}  // namespace
}  // namespace yard::prep
