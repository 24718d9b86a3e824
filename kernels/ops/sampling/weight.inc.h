// The weight of a token, computed only with exactly rounded operations, so bits are equal on every
// device. The includer provides a namespace with BitsOf, DoubleOf and OPWIRE_FUNCTION.

inline constexpr unsigned long long kFullWeight = 1ull << 36;

// floor(2^36 e^d) of d <= 0, relatively off by 2^-41 before it is rounded down.
OPWIRE_FUNCTION unsigned long long WeightOf(double d) {
  if (!(d > -25.0)) return 0;
  constexpr double kRound =
      6755399441055744.0;  // 1.5 2^52: a number that is added to it is rounded to a whole number
  const double n = d * 1.44269504088896338700 + kRound - kRound;
  const double r = d - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
  const double p =
      1.0 +
      r * (1.0 +
           r * (0.5 + r * (1.66666666666666657415e-01 +
                           r * (4.16666666666666643537e-02 +
                                r * (8.33333333333333321769e-03 +
                                     r * (1.38888888888888894189e-03 +
                                          r * (1.98412698412698412526e-04 +
                                               r * (2.48015873015873015658e-05 +
                                                    r * (2.75573192239858925110e-06 +
                                                         r * 2.75573192239858882758e-07)))))))));
  return static_cast<unsigned long long>(
      p * DoubleOf(static_cast<unsigned long long>(1023 + 36 + static_cast<long long>(n)) << 52));
}

// The least sum of weights that is `share` of `total`, from 1 to `total`. REQUIRES: share < 1.
OPWIRE_FUNCTION unsigned long long ShareOf(double share, unsigned long long total) {
  const double wanted = share * static_cast<double>(total);
  if (!(wanted > 1.0)) return 1;
  const unsigned long long below = static_cast<unsigned long long>(wanted),
                           least = below + (static_cast<double>(below) < wanted ? 1 : 0);
  return least < total ? least : total;
}
