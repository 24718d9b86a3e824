// Reads manifests, and trusts no file that another user may change.
#include "kernels/jit/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/ops/extents.h"
#include "ir/ops/names.h"
#include "kernels/jit/digest.h"
#include "kernels/jit/files.h"
#include "kernels/jit/gpu_unit.h"

namespace opwire::jit {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxManifestBytes = 256 << 10, kMaxSourceBytes = 16 << 20;
constexpr std::string_view kDeclarationKeys[] = {"version",    "signature", "types",
                                                 "attributes", "indices",   "doc"};
constexpr std::string_view kKeys[] = {"name",       "version", "signature", "types",
                                      "attributes", "indices", "doc",       "reference",
                                      "variants",   "tests",   "bench",     "tolerance"};
constexpr std::string_view kVariantKeys[] = {"backend",       "sources",   "headers",  "flags",
                                             "arch_flags",    "libraries", "min_arch", "priority",
                                             "deterministic", "launch",    "workspace"};
constexpr std::string_view kLaunchKeys[] = {"function", "blocks", "threads", "shared"};
constexpr std::string_view kBackends[] = {"cpu", "cuda", "hip"};
constexpr size_t kMaxVariants = 16, kMaxTests = 256, kMaxList = 64, kMaxLaunches = 16;
constexpr int64_t kMaxCaseExtent = int64_t{1} << 26;

Status Wrong(std::string_view key, std::string_view expected, const Json& got) {
  return InvalidArgument("{}: expected {}, got {}", key, expected,
                         Clip(got.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

Status Prefix(std::string_view where, const Status& s) {
  return Status(s.code(), fmt::format("{}: {}", where, MessageOf(s)));
}

template <size_t n>
Status UnknownKey(std::string_view where, std::string_view key, const std::string_view (&keys)[n]) {
  return InvalidArgument("{}unknown key '{}'{}", where, Clip(key),
                         DidYouMean(NearestNames(key, {std::begin(keys), std::end(keys)})));
}

// The path of a file in the folder; no part of the name may lead out of it.
StatusOr<std::string> FileOf(const std::string& folder, const std::string& name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
           c == '/';
  };
  const bool plain = !name.empty() && name.size() <= 255 && std::ranges::all_of(name, allowed) &&
                     name[0] != '/' && name[0] != '-' && name.back() != '/';
  if (!plain)
    return InvalidArgument(
        "'{}': expected a file of the folder, its name of letters, digits, '_', '-', '.' and '/'",
        Clip(name));
  std::string path = folder;
  std::stringstream parts(name);
  for (std::string part; std::getline(parts, part, '/');) {
    if (part.empty() || part == "." || part == "..")
      return InvalidArgument("'{}': expected a file of the folder, got a way out of it",
                             Clip(name));
    path += "/" + part;
    OPWIRE_RETURN_IF_ERROR(CheckOwner(path, path.size() < folder.size() + 1 + name.size()));
  }
  return path;
}

StatusOr<std::string> ReadAtMost(const std::string& path, int64_t most) {
  const std::optional<FileStamp> stamp = StampOf(path);
  if (stamp && stamp->bytes > most)
    return InvalidArgument("{}: expected at most {} bytes, got {}", path, most, stamp->bytes);
  return ReadFile(path);
}

StatusOr<std::vector<std::string>> Strings(const Json& value, std::string_view key) {
  if (!value.is_array() || value.size() > kMaxList)
    return Wrong(key, fmt::format("a list of at most {} strings", kMaxList), value);
  std::vector<std::string> out;
  for (const Json& v : value) {
    if (!v.is_string()) return Wrong(key, "strings", v);
    out.push_back(v.get<std::string>());
  }
  return out;
}

// Files that exist and that only their owner may change.
StatusOr<std::vector<std::string>> Files(const std::string& folder, const Json& value,
                                         std::string_view key) {
  OPWIRE_ASSIGN_OR_RETURN(std::vector<std::string> names, Strings(value, key));
  for (const std::string& name : names) {
    const auto path = FileOf(folder, name);
    if (!path.ok()) return Prefix(key, path.status());
  }
  return names;
}

// Whether an option names further files to write, to run or to read options from. Those are only
// set by the other keys of the manifest.
bool NamesFiles(std::string_view flag) {
  constexpr std::string_view kBeginnings[] = {"-o",           "--output", "-M",      "-save-temps",
                                              "--save-temps", "-dump",    "-fdump",  "-wrapper",
                                              "-fplugin",     "-specs",   "--specs", "-Xlinker",
                                              "-Xassembler",  "-Wa,",     "-Wp,",    "-B"};
  const bool begins =
      std::ranges::any_of(kBeginnings, [&](std::string_view b) { return flag.starts_with(b); });
  const bool to_linker = flag.starts_with("-Wl,") &&
                         (flag.find(",-o") != flag.npos || flag.find(",--output") != flag.npos ||
                          flag.find(",-Map") != flag.npos);
  return begins || to_linker || flag.find('@') != flag.npos;
}

// Options of the compiler. None may name its output or a file of further options.
StatusOr<std::vector<std::string>> Flags(const Json& value, std::string_view key) {
  OPWIRE_ASSIGN_OR_RETURN(std::vector<std::string> flags, Strings(value, key));
  for (const std::string& f : flags) {
    const bool control =
        std::ranges::any_of(f, [](char c) { return static_cast<unsigned char>(c) < ' '; });
    if (f.size() < 2 || f[0] != '-' || NamesFiles(f) || control)
      return InvalidArgument("{}: '{}': expected an option such as -funroll-loops", key, Clip(f));
  }
  return flags;
}

bool IsWord(std::string_view s) {
  return !s.empty() && std::ranges::all_of(s, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '+' ||
           c == '.';
  }) && s[0] != '-';
}

StatusOr<std::vector<std::string>> Backends(const Json& value, const std::string& key) {
  std::vector<std::string> backends;
  if (value.is_string()) {
    backends.push_back(value.get<std::string>());
  } else {
    OPWIRE_ASSIGN_OR_RETURN(backends, Strings(value, key));
  }
  for (const std::string& b : backends) {
    if (std::ranges::find(kBackends, b) == std::end(kBackends))
      return InvalidArgument("{}: expected cpu, cuda or hip, got '{}'", key, Clip(b));
  }
  if (backends.empty()) return InvalidArgument("{}: expected at least one", key);
  return backends;
}

// A number or a formula, as text. Its names are checked after the whole manifest has been read.
StatusOr<std::string> FormulaText(const Json& value, const std::string& key) {
  if (value.is_number_integer() && value >= 0) return value.dump();
  if (!value.is_string())
    return Wrong(key, "a number of at least 0 or a formula, such as \"(N + 255) / 256\"", value);
  return value.get<std::string>();
}

StatusOr<LaunchSpec> ReadLaunch(const Json& j, const std::string& where) {
  if (!j.is_object()) return Wrong(where, "an object, or a list of them", j);
  LaunchSpec launch;
  for (const auto& [field, value] : j.items()) {
    const std::string key = where + "." + field;
    if (field == "function") {
      const auto allowed = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) ||
               std::string_view("_:<>, ").find(c) != std::string_view::npos;
      };
      if (value.is_string()) launch.function = value.get<std::string>();
      if (launch.function.empty() || launch.function.size() > 256 ||
          !std::ranges::all_of(launch.function, allowed)) {
        return Wrong(key, "a device function of the source, such as Scale<T>", value);
      }
    } else if (field == "blocks") {
      const Json list = value.is_array() ? value : Json::array({value});
      if (list.empty() || list.size() > 3)
        return Wrong(key, "a formula, or up to three along x, y and z", value);
      for (size_t i = 0; i < list.size(); ++i) {
        OPWIRE_ASSIGN_OR_RETURN(launch.blocks[i], FormulaText(list[i], key));
      }
    } else if (field == "threads") {
      if (!value.is_number_integer() || value < 64 || value > 1024 || value.get<int>() % 64 != 0)
        return Wrong(key, "a multiple of 64 up to 1024", value);
      launch.threads = value.get<int>();
    } else if (field == "shared") {
      OPWIRE_ASSIGN_OR_RETURN(launch.shared, FormulaText(value, key));
    } else {
      return UnknownKey(where + ": ", field, kLaunchKeys);
    }
  }
  if (launch.function.empty()) return InvalidArgument("{}: \"function\" is missing", where);
  return launch;
}

// The formulas of a GPU variant's launches may only use properties of its calls.
Status CheckLaunches(const OpManifest& m, const OpVariantSpec& v) {
  const std::string where = fmt::format("variants.{}", v.name);
  if (!v.Serves("cuda") && !v.Serves("hip")) {
    if (v.launches.empty() && v.workspace == "0") return absl::OkStatus();
    return InvalidArgument("{}: \"launch\" and \"workspace\" are for cuda and hip", where);
  }
  if (v.launches.empty())
    return InvalidArgument(
        "{}: \"launch\" is missing: the function that runs on cuda and hip, and its grid", where);
  for (const AttrSpec& a : m.row.attrs) {
    if (a.kind == AttrKind::kInt || a.kind == AttrKind::kFloat || a.kind == AttrKind::kBool ||
        a.kind == AttrKind::kDType)
      continue;
    return InvalidArgument(
        "{}: attribute {}: functions of cuda and hip take int, float, bool and dtype, got {}",
        where, a.name, AttrKindName(a.kind));
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, FormulaNames(m));
  const auto check = [&](const std::string& formula, std::string_view key) {
    return Prefix(key, CheckFormula(formula, names));
  };
  OPWIRE_RETURN_IF_ERROR(check(v.workspace, where + ".workspace"));
  for (const LaunchSpec& l : v.launches) {
    for (const std::string& blocks : l.blocks)
      OPWIRE_RETURN_IF_ERROR(check(blocks, where + ".launch.blocks"));
    OPWIRE_RETURN_IF_ERROR(check(l.shared, where + ".launch.shared"));
  }
  return absl::OkStatus();
}

StatusOr<OpVariantSpec> ReadVariant(const std::string& folder, const std::string& name,
                                    const Json& j) {
  const std::string where = fmt::format("variants.{}", Clip(name));
  if (!IsIdentifier(name) || name.size() > 64 || name == "reference") {
    return InvalidArgument("{}: expected an identifier of at most 64 bytes, other than reference",
                           where);
  }
  if (!j.is_object()) return Wrong(where, "an object", j);
  OpVariantSpec v{.name = name, .backends = {"cpu"}};
  for (const auto& [field, value] : j.items()) {
    const std::string key = where + "." + field;
    if (field == "backend") {
      OPWIRE_ASSIGN_OR_RETURN(v.backends, Backends(value, key));
    } else if (field == "sources") {
      OPWIRE_ASSIGN_OR_RETURN(v.sources, Files(folder, value, key));
    } else if (field == "headers") {
      OPWIRE_ASSIGN_OR_RETURN(v.headers, Files(folder, value, key));
    } else if (field == "flags") {
      OPWIRE_ASSIGN_OR_RETURN(v.flags, Flags(value, key));
    } else if (field == "libraries") {
      OPWIRE_ASSIGN_OR_RETURN(v.libraries, Strings(value, key));
      for (const std::string& l : v.libraries) {
        if (!IsWord(l))
          return InvalidArgument("{}: '{}': expected a library's name, such as openblas", key,
                                 Clip(l));
      }
    } else if (field == "arch_flags" || field == "min_arch") {
      if (!value.is_object()) return Wrong(key, "an object", value);
      for (const auto& [of, what] : value.items()) {
        if (field == "arch_flags") {
          OPWIRE_ASSIGN_OR_RETURN(v.arch_flags[of], Flags(what, key + "." + of));
        } else {
          if (!what.is_string() || !IsWord(what.get<std::string>()))
            return Wrong(key + "." + of, "an architecture, such as x86-64-v3 or sm_90a", what);
          if (std::ranges::find(kBackends, of) == std::end(kBackends))
            return InvalidArgument("{}: expected cpu, cuda or hip, got '{}'", key, Clip(of));
          v.min_arch[of] = what.get<std::string>();
        }
      }
    } else if (field == "priority") {
      if (!value.is_number_integer() || value < -1000 || value > 1000)
        return Wrong(key, "-1000 to 1000", value);
      v.priority = value.get<int>();
    } else if (field == "deterministic") {
      if (!value.is_boolean()) return Wrong(key, "true or false", value);
      v.deterministic = value.get<bool>();
    } else if (field == "launch") {
      const Json list = value.is_array() ? value : Json::array({value});
      if (list.empty() || list.size() > kMaxLaunches)
        return Wrong(key, fmt::format("one launch, or a list of up to {}", kMaxLaunches), value);
      for (size_t i = 0; i < list.size(); ++i) {
        OPWIRE_ASSIGN_OR_RETURN(
            v.launches.emplace_back(),
            ReadLaunch(list[i], value.is_array() ? fmt::format("{}[{}]", key, i) : key));
      }
    } else if (field == "workspace") {
      OPWIRE_ASSIGN_OR_RETURN(v.workspace, FormulaText(value, key));
    } else {
      return UnknownKey(where + ": ", field, kVariantKeys);
    }
  }
  if (v.sources.empty()) return InvalidArgument("{}: \"sources\" is missing", where);
  const bool gpu = v.Serves("cuda") || v.Serves("hip");
  if (gpu && v.sources.size() != 1)
    return InvalidArgument("{}.sources: expected one file for cuda and hip, got {}", where,
                           v.sources.size());
  return v;
}

StatusOr<OpCase> ReadCase(const OpManifest& m, const Json& j, const std::string& where) {
  if (!j.is_object()) return Wrong(where, "an object", j);
  const OpDef& row = m.row;
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExtentNames(m.declaration));
  OpCase c;
  for (const auto& [key, value] : j.items()) {
    if (key == "attributes") {
      if (!value.is_object()) return Wrong(where + ".attributes", "an object", value);
      for (const auto& [name, v] : value.items()) {
        const int i = row.FindAttr(name);
        if (i < 0)
          return InvalidArgument("{}.attributes: the op has no attribute {}", where, Clip(name));
        // Read in the same way as a declaration's default.
        const Json probe = {
            {"name", "user.x"},
            {"signature", "-> y: f32[]"},
            {"attributes",
             {{name,
               {{"type", AttrKindName(row.attrs[static_cast<size_t>(i)].kind)}, {"default", v}}}}}};
        auto read = DeclarationFromJson(probe.dump());
        if (!read.ok()) return Prefix(where, read.status());
        c.attrs.push_back({name, *read->attrs[0].fallback});
      }
      continue;
    }
    const auto extent = [](const Json& v) {
      return v.is_number_integer() && v >= 0 && v <= kMaxCaseExtent;
    };
    const std::string wanted = fmt::format("0 to {}", kMaxCaseExtent);
    if (key == "...") {
      if (!value.is_array() || value.size() > static_cast<size_t>(kMaxRank) ||
          !std::ranges::all_of(value, extent))
        return Wrong(where + "....", "a list of extents", value);
      c.leading = value.get<std::vector<int64_t>>();
    } else if (std::ranges::find(names, key) == names.end()) {
      return InvalidArgument("{}: '{}': expected attributes, or an extent of the signature: {}",
                             where, Clip(key), fmt::join(names, ", "));
    } else if (!extent(value)) {
      return Wrong(where + "." + key, wanted, value);
    } else {
      c.extents[key] = value.get<int64_t>();
    }
  }
  return c;
}

StatusOr<OpManifest> Read(const std::string& folder, const Json& j) {
  if (!j.is_object()) return Wrong("manifest", "an object", j);
  OpManifest m{.folder = folder};
  for (const auto& [key, value] : j.items()) {
    if (std::ranges::find(kKeys, key) == std::end(kKeys)) return UnknownKey("", key, kKeys);
  }
  const auto at = [&](std::string_view key) { return j.find(std::string(key)); };
  if (at("name") == j.end() || !at("name")->is_string())
    return InvalidArgument("\"name\": expected the op's name");
  Json declared{{"name", std::string(kUserPrefix) + at("name")->get<std::string>()}};
  for (std::string_view key : kDeclarationKeys) {
    if (const auto it = at(key); it != j.end()) declared[std::string(key)] = *it;
  }
  OPWIRE_ASSIGN_OR_RETURN(m.declaration, DeclarationFromJson(declared.dump(
                                             -1, ' ', false, Json::error_handler_t::replace)));
  OPWIRE_ASSIGN_OR_RETURN(m.row, RowOf(m.declaration));

  const auto reference = at("reference");
  if (reference == j.end() || !reference->is_string())
    return InvalidArgument(
        "\"reference\": expected the file of a program, which says what the op computes");
  const auto path = FileOf(folder, reference->get<std::string>());
  if (!path.ok()) return Prefix("reference", path.status());
  OPWIRE_ASSIGN_OR_RETURN(m.reference, ReadAtMost(*path, kMaxSourceBytes));

  const auto variants = at("variants");
  if (variants == j.end() || !variants->is_object() || variants->empty() ||
      variants->size() > kMaxVariants) {
    return InvalidArgument("\"variants\": expected an object of one to {} variants by name",
                           kMaxVariants);
  }
  for (const auto& [name, value] : variants->items()) {
    OPWIRE_ASSIGN_OR_RETURN(m.variants.emplace_back(), ReadVariant(folder, name, value));
    OPWIRE_RETURN_IF_ERROR(CheckLaunches(m, m.variants.back()));
  }
  if (const auto tests = at("tests"); tests != j.end()) {
    if (!tests->is_array() || tests->size() > kMaxTests)
      return Wrong("tests", fmt::format("a list of at most {} cases", kMaxTests), *tests);
    for (size_t i = 0; i < tests->size(); ++i) {
      OPWIRE_ASSIGN_OR_RETURN(m.tests.emplace_back(),
                              ReadCase(m, (*tests)[i], fmt::format("tests[{}]", i)));
    }
  }
  if (const auto bench = at("bench"); bench != j.end()) {
    OPWIRE_ASSIGN_OR_RETURN(m.bench, ReadCase(m, *bench, "bench"));
  }
  if (const auto tolerance = at("tolerance"); tolerance != j.end()) {
    if (!tolerance->is_object()) return Wrong("tolerance", "an object", *tolerance);
    for (const auto& [name, value] : tolerance->items()) {
      const auto dtype = ParseDType(name);
      if (!dtype) return InvalidArgument("tolerance: '{}': expected an element type", Clip(name));
      if (!value.is_number() || value < 0)
        return Wrong("tolerance." + name, "a number of at least 0", value);
      m.tolerance[*dtype] = value.get<double>();
    }
  }
  return m;
}

// "x86-64-v3" as 3, "sm_90a" as 90, "gfx90a" as 0x90a: an order within a family of names.
std::pair<std::string, int64_t> Level(const std::string& arch) {
  size_t digits = arch.size();
  while (digits > 0 && std::isxdigit(static_cast<unsigned char>(arch[digits - 1]))) --digits;
  const bool hex = arch.starts_with("gfx");
  return {arch.substr(0, digits), std::strtoll(arch.c_str() + digits, nullptr, hex ? 16 : 10)};
}

}  // namespace

bool OpVariantSpec::Serves(std::string_view backend) const {
  if (backend == "emu") return Serves("cuda") || Serves("hip");
  return std::ranges::find(backends, backend) != backends.end();
}

std::vector<std::string> OpVariantSpec::BackendsFor(std::string_view own) const {
  std::vector<std::string> all = backends;
  if (own == "emu" && Serves(own)) all.emplace_back(own);
  return all;
}

StatusOr<std::vector<std::string>> FormulaNames(const OpManifest& op) {
  OPWIRE_ASSIGN_OR_RETURN(std::vector<std::string> names, ExtentNames(op.declaration));
  std::ranges::replace(names, std::string("..."), std::string(kLeadingExtent));
  for (const AttrSpec& a : op.row.attrs) {
    if (a.kind == AttrKind::kInt) names.push_back(a.name);
  }
  return names;
}

StatusOr<OpManifest> ReadManifest(const std::string& folder) {
  std::error_code error;
  const std::string absolute = std::filesystem::canonical(folder, error).string();
  if (error) return NotFound("{}: {}", folder, error.message());
  const std::string path = fmt::format("{}/{}", absolute, kManifestName);
  OPWIRE_RETURN_IF_ERROR(CheckOwner(absolute, true));
  OPWIRE_RETURN_IF_ERROR(CheckOwner(path, false));
  OPWIRE_ASSIGN_OR_RETURN(const std::string text, ReadAtMost(path, kMaxManifestBytes));
  if (Status s = CheckJsonDepth(text); !s.ok()) return Prefix(path, s);
  const Json j = Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (j.is_discarded()) {
    std::string why = "no JSON";
    try {
      why = Json::parse(text, nullptr, true, true).type_name();
    } catch (const std::exception& e) {
      why = e.what();
    }
    return InvalidArgument("{}: {}", path, Clip(why, 256));
  }
  StatusOr<OpManifest> manifest = Read(absolute, j);
  if (manifest.ok()) {
    manifest->digest =
        Digest().Add(std::string_view(text)).Add(std::string_view(manifest->reference)).Hex();
    return manifest;
  }
  return Prefix(path, manifest.status());
}

StatusOr<std::vector<std::string>> OpFolders(const std::string& directory) {
  std::error_code error;
  const std::string absolute = std::filesystem::canonical(directory, error).string();
  if (error) return NotFound("{}: {}", directory, error.message());
  const auto is_op = [&](const std::filesystem::path& p) {
    return std::filesystem::exists(p / kManifestName, error);
  };
  if (is_op(absolute)) return std::vector{absolute};
  OPWIRE_RETURN_IF_ERROR(CheckOwner(absolute, true));
  std::vector<std::string> folders;
  for (std::filesystem::directory_iterator it(absolute, error), end; !error && it != end;
       it.increment(error)) {
    if (is_op(it->path())) folders.push_back(it->path().string());
  }
  if (error) return NotFound("{}: {}", absolute, error.message());
  std::ranges::sort(folders);
  return folders;
}

StatusOr<CompileRequest> RequestFor(const OpManifest& op, const OpVariantSpec& variant,
                                    std::string_view backend, const std::string& arch) {
  CompileRequest r{.name = fmt::format("{}@{}", op.name(), variant.name),
                   .directory = op.folder,
                   .flags = variant.flags,
                   .arch = arch,
                   .judged_by = op.digest};
  if (const auto more = variant.arch_flags.find(arch); more != variant.arch_flags.end())
    r.flags.insert(r.flags.end(), more->second.begin(), more->second.end());
  // Checked again: the files may have changed since the manifest was read.
  for (const std::vector<std::string>* files : {&variant.sources, &variant.headers}) {
    for (const std::string& name : *files) OPWIRE_RETURN_IF_ERROR(FileOf(op.folder, name).status());
  }
  if (backend == "cpu") {
    r.sources = variant.sources;
    r.libraries = variant.libraries;
    return r;
  }
  // The emulator's compiler is the host's, which knows other flags.
  if (backend == "emu")
    std::erase_if(r.flags, [](const std::string& f) { return !f.starts_with("-D"); });
  OPWIRE_ASSIGN_OR_RETURN(const std::string path, FileOf(op.folder, variant.sources[0]));
  OPWIRE_ASSIGN_OR_RETURN(const std::string source, ReadAtMost(path, kMaxSourceBytes));
  OPWIRE_ASSIGN_OR_RETURN(r.text, GpuUnit(op, variant, source));
  return r;
}

std::string BelowArch(const std::string& arch, const std::string& least) {
  if (least.empty()) return "";
  const auto have = Level(arch), need = Level(least);
  return have.first == need.first && have.second >= need.second
             ? ""
             : fmt::format("needs {}, this is {}", least, arch);
}

}  // namespace opwire::jit
