// Files that hold no lines of requests are refused once; files of lines with bad ones among them
// are not. What is compressed is read.
#include "src/requests/input_form.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/requests/reader.h"
#include "src/requests/scan.h"
#include "src/requests/text_file.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using std::string_literals::operator""s;

constexpr const char* kRequest = R"({"prompt":"a"})";

// The refusal, or "lines".
std::string FormOfFile(const std::string& bytes, const std::string& name = "in.jsonl") {
  try {
    RefuseOtherForm({bytes, true}, FormOf(name), name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "lines";
}

std::string Utf16(const std::string& text, bool big_endian) {
  std::string out;
  for (const char c : text) out += big_endian ? "\0"s + c : c + "\0"s;
  return out;
}

constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";

// Header of a member, as far as readers need it, and its content; `mark` as its form has it.
std::string Tar(const std::string& name, const std::string& content,
                const std::string& mark = "ustar  \0"s) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(148, 8, 8, ' ');
  header.replace(257, mark.size(), mark);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 8, fmt::format("{:06o}", sum) + "\0 "s);
  return header + content;
}

TEST(InputForm, OtherFormsAreNamedWithARemedy) {
  const std::string line = std::string(kRequest) + "\n";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"\xFF\xFE" + Utf16(line, false), "in.jsonl: is UTF-16, and UTF-8 is read; convert it"},
      {"\xFE\xFF" + Utf16(line, true), "is UTF-16"},
      {Utf16(line, false), "is UTF-16"},
      {Utf16(line, true), "is UTF-16"},
      {"\xFF\xFE\0\0{\0\0\0"s, "is UTF-32"},
      {"PAR1\x15\0\x15\x02"s, "is a Parquet file"},
      {"ARROW1\0\0"s, "is an Arrow file"},
      {"PK\x03\x04\x14\0\0\0"s, "is a zip archive"},
      {"BZh91AY&SY\x01\x02\xff"s, "is compressed with bzip2; unpack it"},
      {"\xFD"
       "7zXZ\0\0\x04"s,
       "is compressed with xz"},
      {"\x80\x04\x95\0\0"s, "is a pickle of Python"},
      {"[" + std::string(kRequest) + "]", "is one JSON array; write one object a line"},
      {"[\n" + std::string(kRequest) + ",\n" + kRequest + "\n]\n", "is one JSON array"},
      {"  [\n 5,\n 6]", "is one JSON array"},
      {"{\n  \"prompt\": \"a\"\n}\n", "is JSON objects over several lines each"},
      {"{\n  \"messages\": [\n{\"role\":\"user\"}\n]\n}\n{\n  \"prompt\": \"a\"\n}\n",
       "is JSON objects over several lines each"},
      {"{'prompt': 'a'}\n{'prompt': 'b'}\n", "is dictionaries of Python"},
      {"prompt,max_tokens\nOnce upon a time,3\n", "is comma-separated text (CSV)"},
      {"prompt;max_tokens\nOnce upon a time;3\n", "is comma-separated text (CSV)"},
      {"\"prompt\",\"n\"\n\"Once\",3\n", "is comma-separated text (CSV)"},
      {"prompt\tmax_tokens\nOnce upon a time\t3\n", "is tab-separated text (TSV)"},
      {"<?xml version=\"1.0\"?>\n<a/>", "is XML or HTML"},
      {"Once upon a time, there was a king.\nThe end.\n", "is plain text; write one JSON object"},
      {"prompt: a\n", "is plain text"},
      {"\x01\x02\x03"s, "is binary data"},
      {Tar("a.jsonl", line + line), "is a tar archive; unpack it"},
      {Tar("a.jsonl", line + line, ""), "is a tar archive; unpack it"},
      {kLfsPointer, "is a git-LFS pointer in place of the file; run git lfs pull"},
      {"\x1F\x8B\x08\0\0\0\0\0"s, "is gzip data within compressed data; unpack it"},
      {"\x28\xB5\x2F\xFD\x04\0"s, "is zstd data within compressed data; unpack it"},
      {"GGUF\x03\0\0\0"s, "is a GGUF file, which holds a model; give it to --model"},
      {"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}"s, "is a safetensors file"},
      {"\x0A\0\0\0\0\0\0\0{\"a\":{}}\n\n"s, "is a safetensors file"},
      {"[{\"prompt\": \"a\", \"score\": NaN}, {\"prompt\": \"b\"}]", "is one JSON array"},
  };
  for (const auto& [bytes, message] : files)
    EXPECT_THAT(FormOfFile(bytes), HasSubstr(message)) << bytes.substr(0, 60);
  EXPECT_THAT(FormOfFile("One long line, which is text", "in.csv"), HasSubstr("(CSV)"));
}

TEST(InputForm, AFileWithALineThatMayBeARequestIsOneOfLines) {
  const std::string line = std::string(kRequest) + "\n";
  for (const std::string& bytes :
       std::vector<std::string>{"",
                                "\n \n",
                                line,
                                "this is no request\n" + line,
                                line + "a,b\n",
                                "a,b\n" + line,
                                "[\"a\"]\n" + line,
                                "[\n" + line,
                                "[1,\n" + line + line,
                                "{\n" + line,
                                "{\"prompt\":\n\"a\"}\n" + line,
                                "{\"prompt\":\"a\",\"max_to",
                                "nonsense\n{\n",
                                "\xFF\xFE\n" + line,
                                "PAR1\n" + line,
                                "PAR1\x01\n"s + line,
                                "17\n18\n",
                                "\"a\"\n",
                                "{'prompt': 'a'}\n" + line,
                                "\0\0\n"s + line,
                                "GGUF\x03\n"s + line,
                                std::string(8, '\0') + line + line,
                                "version https://git-lfs.github.com/spec/v1\n" + line,
                                std::string(257, ' ') + "ustar\n" + line,
                                "version https://x\n" + line})
    EXPECT_EQ(FormOfFile(bytes), "lines") << bytes;
}

TEST(InputForm, OfTextOnlyWhatIsNoTextIsRefused) {
  for (const char* text : {"a,b\nc,d", "[1,\n2]", "{\n}", "PAR1", "BZh9", "<b>"})
    EXPECT_EQ(FormOfFile(text, "in.txt"), "lines") << text;
  EXPECT_THAT(FormOfFile("\xFF\xFEO\0n\0"s, "in.txt"), HasSubstr("UTF-16"));
  EXPECT_THAT(FormOfFile("PK\x03\x04", "in.TXT"), HasSubstr("zip"));
  EXPECT_THAT(FormOfFile(Tar("a.txt", "Once\n"), "in.txt"), HasSubstr("tar archive"));
  EXPECT_THAT(FormOfFile(kLfsPointer, "in.txt"), HasSubstr("git-LFS"));
}

TEST(InputForm, GoesByTheNameWithoutItsCompression) {
  EXPECT_EQ(FormOf("a.txt.gz"), InputForm::kPlainLines);
  EXPECT_EQ(FormOf("a.TXT.zst"), InputForm::kPlainLines);
  EXPECT_EQ(FormOf("a.gz"), InputForm::kJsonLines);
  EXPECT_EQ(FormOf("txt"), InputForm::kJsonLines);
}

TEST(InputForm, AnArrayIsSeenThoughOnlyItsStartIs) {
  std::string array = "[\n";
  while (array.size() < (1 << 20)) array += std::string(kRequest) + ",\n";
  const std::string start = array.substr(0, 1000);
  EXPECT_THROW(RefuseOtherForm({start, false}, InputForm::kJsonLines, "in"), Error);
  const TemporaryFolder folder;
  ReaderOptions options;
  options.max_positions = 100;
  options.vocab_rows = 300;
  const auto path = folder.Write("in.jsonl", array + kRequest + "]");
  EXPECT_THROW(ScanInput(path, FakeTokenizer(), options, 2), Error);
  // A first line that is broken does not make an array of what follows.
  const std::string lines = "[oops\n" + std::string(kRequest) + "\n";
  EXPECT_NO_THROW(RefuseOtherForm({lines, false}, InputForm::kJsonLines, "in"));
}

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

// With a checksum, as its tools write it.
std::string Zstd(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  const std::size_t size =
      ::ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ::ZSTD_freeCCtx(context);
  EXPECT_EQ(::ZSTD_isError(size), 0u);
  out.resize(size);
  return out;
}

class Compressed : public testing::TestWithParam<std::string (*)(const std::string&)> {
 protected:
  // Lines read, and the hash of them; the refusal where there is one.
  std::string ReadFile(const std::string& bytes, const std::string& name = "in.jsonl") {
    const ReaderOptions options = OptionsFor(100);
    try {
      const auto path = folder_.Write(name, bytes);
      const InputScan scan = ScanInput(path, FakeTokenizer(), options, 2);
      return std::to_string(scan.num_requests) + " " + std::to_string(scan.hash);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return error.what();
    }
  }

  TemporaryFolder folder_;
};

TEST_P(Compressed, IsReadAsWhatItHolds) {
  const auto pack = GetParam();
  std::string text = "\xEF\xBB\xBF";
  for (int line = 0; line < 50'000; ++line)
    text += R"({"prompt":"a)" + std::to_string(line) + "\"}\n";
  const std::string plain = ReadFile(text);
  EXPECT_THAT(plain, testing::StartsWith("50000 "));
  EXPECT_EQ(ReadFile(pack(text), "in.jsonl.gz"), plain);
  // The name does not matter, and files one behind the other are one.
  EXPECT_EQ(ReadFile(pack(text.substr(0, 70'001)) + pack("") + pack(text.substr(70'001))), plain);
  EXPECT_THAT(ReadFile(pack("a\nb\n"), "in.txt.zst"), testing::StartsWith("2 "));
  EXPECT_EQ(ReadTextFile(folder_.Write("text", pack("one text")), "--text"), "one text");
  EXPECT_THAT(ReadFile(pack("[\n1,\n2]")), HasSubstr("is one JSON array"));
  EXPECT_THAT(ReadFile(pack(Tar("a.jsonl", text)), "in.tar.gz"), HasSubstr("is a tar archive"));
  EXPECT_THAT(ReadFile(pack(pack(text))), HasSubstr("data within compressed data"));
}

TEST_P(Compressed, IsRefusedWhereItIsDamaged) {
  std::string text;
  for (int line = 0; line < 5000; ++line)
    text += R"({"prompt":"a)" + std::to_string(line * 7919) + "\"}\n";
  const std::string packed = GetParam()(text);
  EXPECT_THAT(ReadFile(packed.substr(0, packed.size() / 2)), HasSubstr("ends in the middle"));
  EXPECT_THAT(ReadFile(packed.substr(0, 5)), HasSubstr("ends in the middle"));
  EXPECT_THAT(ReadFile(packed + "something else"), HasSubstr("is damaged"));
  std::string flipped = packed;
  flipped[packed.size() / 2] ^= 0x55;
  EXPECT_THAT(ReadFile(flipped + packed), HasSubstr("is damaged"));
}

INSTANTIATE_TEST_SUITE_P(Formats, Compressed, testing::Values(&Gzip, &Zstd));

}  // namespace
}  // namespace spillway
