#include "gradwire/federated/secure/shamir.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <openssl/bn.h>
#include <openssl/crypto.h>

#include "gradwire/base/check.h"

namespace gradwire::federated {
namespace {

struct BigNumberDeleter {
  void operator()(BIGNUM* number) const { BN_clear_free(number); }
  void operator()(BN_CTX* context) const { BN_CTX_free(context); }
  void operator()(BN_MONT_CTX* context) const { BN_MONT_CTX_free(context); }
};
using BigNumber = std::unique_ptr<BIGNUM, BigNumberDeleter>;

constexpr std::size_t kShareBytes = std::tuple_size_v<Share>;
constexpr unsigned kAboveTwoTo256 = 297;

unsigned char* bytes_at(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* bytes_at(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

/// With 1 from each of OpenSSL's functions: they fail for lack of memory alone.
void need(int done) {
  GRADWIRE_CHECK(done == 1);
}

}  // namespace

/// Numbers modulo p. Products are Montgomery's: a * b / R, with R a power of 2 above p.
class SecretSharing::Field {
 public:
  Field() : context_(BN_CTX_secure_new()), montgomery_(BN_MONT_CTX_new()), modulus_(make()) {
    need(BN_set_bit(modulus_.get(), 256));
    need(BN_add_word(modulus_.get(), kAboveTwoTo256));
    need(BN_MONT_CTX_set(montgomery_.get(), modulus_.get(), context_.get()));
  }

  static BigNumber make() {
    BigNumber number(BN_new());
    GRADWIRE_CHECK(number != nullptr);
    return number;
  }
  static BigNumber read(ConstBytes bytes) {
    BigNumber number = make();
    GRADWIRE_CHECK(
        BN_bin2bn(bytes_at(bytes.data()), static_cast<int>(bytes.size()), number.get()) != nullptr);
    return number;
  }

  BigNumber of_word(std::int64_t word) const {
    BigNumber number = make();
    need(BN_set_word(number.get(), static_cast<std::uint64_t>(word < 0 ? -word : word)));
    if (word < 0) need(BN_sub(number.get(), modulus_.get(), number.get()));
    return number;
  }
  /// Uniform up to 2^-127: of 384 bits.
  Result<BigNumber> draw(const RandomBytes& random) const {
    std::array<std::byte, 48> bytes;
    GRADWIRE_RETURN_IF_ERROR(random(bytes));
    BigNumber number = read(bytes);
    OPENSSL_cleanse(bytes.data(), bytes.size());
    need(BN_nnmod(number.get(), number.get(), modulus_.get(), context_.get()));
    return number;
  }
  void add(BigNumber& to, const BigNumber& other) const {
    need(BN_mod_add_quick(to.get(), to.get(), other.get(), modulus_.get()));
  }
  /// to * other / R.
  void multiply_over_r(BigNumber& to, const BigNumber& other) const {
    need(BN_mod_mul_montgomery(to.get(), to.get(), other.get(), montgomery_.get(), context_.get()));
  }
  void multiply(BigNumber& to, const BigNumber& other) const {
    need(BN_mod_mul(to.get(), to.get(), other.get(), modulus_.get(), context_.get()));
  }
  void multiply_by_r(BigNumber& number) const {
    need(BN_to_montgomery(number.get(), number.get(), montgomery_.get(), context_.get()));
  }
  /// The inverse of each, by a single inversion (Montgomery, 1987).
  void invert(std::vector<BigNumber>& numbers) const {
    std::vector<BigNumber> products;  // Each of all numbers before one.
    BigNumber product = of_word(1);
    for (const BigNumber& number : numbers) {
      products.emplace_back(BN_dup(product.get()));
      multiply(product, number);
    }
    GRADWIRE_CHECK(BN_mod_inverse(product.get(), product.get(), modulus_.get(), context_.get()) !=
                   nullptr);
    for (std::size_t i = numbers.size(); i-- > 0;) {
      multiply(products[i], product);
      multiply(product, numbers[i]);
      numbers[i].swap(products[i]);
    }
  }
  /// Their product over a power of R that depends on their number alone.
  BigNumber product(std::span<const int> factors) const {
    constexpr std::size_t kInAWord = 3;  // Factors are below 2^17.
    BigNumber product = of_word(1);
    for (std::size_t i = 0; i < factors.size(); i += kInAWord) {
      std::int64_t word = 1;
      for (const int factor : factors.subspan(i, std::min(kInAWord, factors.size() - i)))
        word *= factor;
      multiply_over_r(product, of_word(word));
    }
    return product;
  }
  Share share_of(const BigNumber& number) const {
    Share share;
    GRADWIRE_CHECK(BN_bn2binpad(number.get(), bytes_at(share.data()), kShareBytes) ==
                   static_cast<int>(kShareBytes));
    return share;
  }

 private:
  std::unique_ptr<BN_CTX, BigNumberDeleter> context_;
  std::unique_ptr<BN_MONT_CTX, BigNumberDeleter> montgomery_;
  BigNumber modulus_;
};

SecretSharing::SecretSharing() : field_(std::make_unique<Field>()) {}
SecretSharing::~SecretSharing() = default;

Result<std::vector<Share>> SecretSharing::split(const Secret& secret, int threshold,
                                                std::span<const int> points,
                                                const RandomBytes& random) {
  GRADWIRE_CHECK(threshold >= 1);
  std::vector<BigNumber> coefficients;  // The secret's is the first.
  coefficients.push_back(Field::read(secret.bytes()));
  for (int i = 1; i < threshold; ++i) {
    GRADWIRE_ASSIGN_OR_RETURN(coefficients.emplace_back(), field_->draw(random));
  }
  std::vector<Share> shares;
  for (const int point : points) {
    GRADWIRE_CHECK(point > 0);
    BigNumber at = field_->of_word(point);
    field_->multiply_by_r(at);
    BigNumber value = field_->of_word(0);
    for (std::size_t i = coefficients.size(); i-- > 0;) {  // Horner's rule.
      field_->multiply_over_r(value, at);
      field_->add(value, coefficients[i]);
    }
    shares.push_back(field_->share_of(value));
  }
  return shares;
}

/// Lagrange's interpolation at 0. The basis polynomial of point x_i is there the product of all x_m
/// over d_i, the product of x_i and of all x_m - x_i, m != i. Both products have as many factors,
/// so that the powers of R that product() leaves cancel.
Result<Secret> SecretSharing::join(std::span<const int> points, std::span<const Share> shares) {
  GRADWIRE_CHECK(points.size() == shares.size());
  std::vector<BigNumber> divisors;
  std::vector<int> factors(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::ranges::transform(points, factors.begin(), [&](int point) { return point - points[i]; });
    factors[i] = points[i];
    divisors.push_back(field_->product(factors));
  }
  field_->invert(divisors);
  BigNumber value = field_->of_word(0);
  for (std::size_t i = 0; i < points.size(); ++i) {
    BigNumber term = Field::read(shares[i]);
    field_->multiply(term, divisors[i]);
    field_->add(value, term);
  }
  field_->multiply(value, field_->product(points));
  const Share whole = field_->share_of(value);
  if (whole[0] != std::byte{0})
    return failure(ErrorKind::refused, "the shares are of no secret: some are false");
  Secret secret;
  std::copy(whole.begin() + 1, whole.end(), secret.bytes().begin());
  return secret;
}

bool SecretSharing::is_element(const Share& share) {
  static constexpr Share kModulus = [] {
    Share modulus{};
    modulus[0] = std::byte{1};
    modulus[kShareBytes - 2] = std::byte{kAboveTwoTo256 >> 8};
    modulus[kShareBytes - 1] = std::byte{kAboveTwoTo256 & 0xFF};
    return modulus;
  }();
  return share < kModulus;
}

}  // namespace gradwire::federated
