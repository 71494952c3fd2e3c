# The statistics of experiments by base R: `Rscript --vanilla peer.R QUESTIONS.csv NUMBERS.csv`.
# It reads and writes what peer.py does. Errors are five standard deviations of the difference of two honest sets of draws; 0 where nothing is drawn.
DRAWS <- 20000
EXACT_UP_TO <- 12
set.seed(11)

per_task <- function(rewards, metric) {
  if (metric == "mean_reward") return(if (length(rewards)) mean(rewards) else NA)
  k <- as.integer(sub(".*@", "", metric))
  passed <- sum(rewards >= 1)
  if (length(rewards) < k) NA else 1 - dhyper(0, passed, length(rewards) - passed, k)
}

# Scores by run and task of a side, [S, n]; `fill` puts samples that are missing at a value.
table_of <- function(lines, side, metric, tasks, fill = NULL) {
  own <- lines[lines$side == side, ]
  if (is.null(fill)) own <- own[!is.na(own$reward), ] else own$reward[is.na(own$reward)] <- fill
  t(sapply(sort(unique(own$run)), function(run) sapply(tasks, function(task) {
    per_task(own$reward[own$run == run & own$task == task], metric)
  })))
}

honest <- function(p, draws, tails = 1) {
  rare <- max(p, 3 / draws)
  5 * sqrt(max(0, rare * (tails - rare)) * (1 / draws + 1 / DRAWS)) + tails / draws
}
most <- function(...) {
  each <- list(...)
  c(max(sapply(each, `[`, 1)), max(sapply(each, `[`, 2)))
}

# One 0/1 outcome a task: McNemar's exact test by binom.test, mid-p below 25 discordant pairs; Tango's score test elsewhere.
binary_test <- function(d) {
  n <- length(d); b <- sum(d > 0); c <- sum(d < 0)
  at_zero <- function() {
    if (b + c == 0) return(c(1, 0))
    p <- binom.test(b, b + c)$p.value
    if (b == c) return(c(1, 0))
    c(if (b + c < 25) p - dbinom(min(b, c), b + c, 0.5) else p, 0)
  }
  elsewhere <- function(mean) {
    slope <- function(w) {
      (if (b) b / (w + mean) else 0) + (if (c) c / w else 0) - (if (n > b + c) 2 * (n - b - c) / (1 - mean - 2 * w) else 0)
    }
    ends <- c(max(0, -mean) + 1e-15, (1 - mean) / 2 - 1e-15)
    if (ends[2] <= ends[1]) return(c(0, 0))
    w <- if (slope(ends[1]) <= 0) ends[1] else if (slope(ends[2]) >= 0) ends[2] else
      uniroot(slope, ends, tol = 1e-16, maxiter = 10000)$root
    c(2 * pnorm(-abs(b - c - n * mean) / sqrt(n * (2 * w + mean * (1 - mean)))), 0)
  }
  effect <- (b - c) / n
  end <- function(direction, level, loose) {
    zero <- at_zero()[1]; beyond <- direction * (1 - 1e-9)
    root <- if ((effect - beyond) * direction >= 0) beyond else
      uniroot(function(m) elsewhere(m)[1] - level, sort(c(effect + direction * 1e-9, beyond)), tol = 1e-10)$root
    if (effect * direction > 0) return(root)
    inner <- if (direction < 0) max else min
    outer <- if (direction < 0) min else max
    if (zero <= level) inner(0, root) else outer(0, root)
  }
  list(effect = effect, step = 1 / n, at_zero = at_zero, elsewhere = elsewhere, end = end)
}

# Flipped signs of tasks or clusters, in a loop of our own; weighted means with an unseen unit for other differences.
flips_test <- function(d, units, largest, draws) {
  sums <- as.vector(rowsum(d, units)); sizes <- as.vector(rowsum(rep(1, length(d)), units))
  n <- length(d); g <- length(sums); effect <- mean(d); exact <- g <= EXACT_UP_TO
  scale <- max(1, largest, abs(d))
  signs <- if (exact) as.matrix(expand.grid(rep(list(c(1, -1)), g))) else
    rbind(matrix(sample(c(-1, 1), DRAWS * g, replace = TRUE), DRAWS), 1)
  t_of <- function(rows, r) {
    centre <- as.vector(rows %*% r) / n
    squares <- sum(r^2) - 2 * centre * as.vector(rows %*% (r * sizes)) + centre^2 * sum(sizes^2)
    error <- sqrt(g / (g - 1) * pmax(squares, 0)) / n
    ifelse(error > 1e-12, round(abs(centre) / error, 9), ifelse(abs(centre) > 1e-12, Inf, 0))
  }
  flipped <- function(mean) {
    r <- sums - mean * sizes
    t <- t_of(signs, r); seen <- t_of(matrix(1, 1, g), r)
    p <- sum(t >= seen) / length(t)
    c(p, if (exact) 0 else honest(p, draws))
  }
  weights <- matrix(rexp(DRAWS * g), DRAWS); unseen <- rgamma(DRAWS, 0.5) * mean(sizes)
  by_weights <- function(mean) {
    side <- if (mean < effect) -1 else 1
    means <- as.vector(weights %*% sums + side * unseen * scale) / as.vector(weights %*% sizes + unseen)
    p <- min(1, 2 * (if (side < 0) base::mean(means <= mean) else base::mean(means >= mean)))
    c(p, honest(p, draws, 2))
  }
  step <- sqrt(g / (g - 1) * sum((sums - effect * sizes)^2)) / n
  end <- function(direction, level, loose) {
    over <- function(m) { found <- flipped(m); found[1] + loose * found[2] - level }
    inside <- effect + direction * 1e-3 * step; outside <- effect + direction * 8 * step
    while (abs(outside - inside) > 1e-4 * step) {
      middle <- (inside + outside) / 2
      if (over(middle) <= 0) outside <- middle else inside <- middle
    }
    bound <- max(largest, abs(effect))
    min(max(outside, -bound), bound)
  }
  list(
    effect = effect, step = step, at_zero = function() flipped(0), end = end,
    elsewhere = function(mean) most(flipped(mean), by_weights(mean)),
    nulls = function() rank(-t_of(signs, sums), ties.method = "max") / nrow(signs), exact = exact
  )
}

# Training runs as the unit: two-way errors, Student's t, and the permutation of runs.
recipe_test <- function(models, arm, base, units, trained, level, largest) {
  d <- colMeans(arm) - colMeans(base)
  n <- length(d); g <- length(unique(units)); effect <- models$effect
  by_task <- g / (g - 1) * sum(rowsum(d - mean(d), units)^2) / n^2
  sides <- if (trained) list(arm, base) else list(arm)
  parts <- c(by_task); freedoms <- c(g - 1); both <- 0
  for (scores in sides) {
    s <- nrow(scores)
    parts <- c(parts, var(rowMeans(scores)) / s); freedoms <- c(freedoms, s - 1)
    left <- sweep(scores, 2, colMeans(scores)); left <- left - rowMeans(left)
    both <- both + s / (s - 1) * g / (g - 1) * sum(rowsum(t(left), units)^2) / (s * n)^2
  }
  by_run <- sum(parts[-1])
  if (by_run > 1e-20) { # t.test refuses runs that are all alike
    by_r <- if (trained) t.test(rowMeans(arm), rowMeans(base)) else t.test(rowMeans(arm))
    stopifnot(all.equal(sqrt(by_run), by_r$stderr, tolerance = 1e-9))
  }
  total <- max(by_run, by_task, by_run + by_task - both)
  error <- sqrt(total); freedom <- total^2 / sum(parts^2 / freedoms)
  runs <- c(rowMeans(arm), rowMeans(base)); s <- nrow(arm); all_splits <- combn(length(runs), s)
  permutes <- trained && (if (s == nrow(base)) 2 else 1) / ncol(all_splits) <= level
  permuted <- function(mean) {
    moved <- runs - c(rep(mean, s), rep(0, nrow(base)))
    differences <- apply(all_splits, 2, function(i) base::mean(moved[i]) - base::mean(moved[-i]))
    seen <- base::mean(moved[1:s]) - base::mean(moved[-(1:s)])
    c(mean(abs(differences) >= abs(seen) - 1e-12), 0)
  }
  by_t <- function(mean) c(2 * pt(-abs(effect - mean) / error, freedom), 0)
  with_runs <- function(first, mean) if (permutes) most(first, by_t(mean), permuted(mean)) else most(first, by_t(mean))
  end <- function(direction, level, loose) {
    ends <- c(models$end(direction, level, loose), effect + direction * qt(1 - level / 2, freedom) * error)
    if (permutes && by_run > 0) {
      inside <- effect; outside <- effect + direction * 20 * sqrt(by_run)
      for (i in 1:60) {
        middle <- (inside + outside) / 2
        if (permuted(middle)[1] <= level) outside <- middle else inside <- middle
      }
      ends <- c(ends, outside)
    }
    bound <- max(largest, abs(effect))
    min(max(if (direction > 0) max(ends) else min(ends), -bound), bound)
  }
  list(
    effect = effect, step = max(error, models$step), end = end,
    at_zero = function() with_runs(models$at_zero(), 0),
    elsewhere = function(mean) with_runs(p_of(models, mean), mean)
  )
}

# 0 has a test of its own; p may not rise with the distance from the effect because of that.
p_of <- function(test, mean) {
  if (mean == 0) return(test$at_zero())
  found <- test$elsewhere(mean); zero <- test$at_zero()
  if (mean * test$effect < 0) return(c(min(found[1], zero[1]), max(found[2], zero[2])))
  if (abs(mean) < abs(test$effect)) most(found, zero) else found
}

claim_p <- function(test, claim, margin) {
  if (claim == "equal") {
    return(if (abs(test$effect) >= margin) c(1, 0) else most(p_of(test, margin), p_of(test, -margin)))
  }
  boundary <- if (claim == "better") margin else -margin
  holds <- if (claim == "worse") test$effect < boundary else test$effect > boundary
  if (holds) p_of(test, boundary) else c(1, 0)
}

westfall_young <- function(tests, p_values, draws) {
  nulls <- sapply(tests, function(test) test$nulls())
  smallest <- apply(nulls, 1, min); found <- matrix(0, length(tests), 2)
  for (arm in seq_along(tests)) {
    p <- p_values[arm]
    made <- min(1, length(tests) * p, max(mean(smallest <= p * (1 + 1e-9)), p))
    rare <- max(p, 3 / draws); spread <- max(made, 3 / draws)
    error <- sqrt(spread * max(0, 1 - spread)) + (length(tests) - 1) * sqrt(rare * (1 - rare))
    error <- if (tests[[1]]$exact) 0 else 5 * error * sqrt(1 / draws + 1 / DRAWS) + length(tests) / draws
    found[arm, ] <- c(made, error)
  }
  found
}

# An end of an interval as a middle and an error: it holds the one of 95 %, and agrees with the tests of 0 and of the margin.
interval_end <- function(test, q, direction, least) {
  pick <- if (direction > 0) pmax else pmin
  back <- if (direction > 0) pmin else pmax
  ends <- c()
  for (level in c(q$narrow, q$wide)) for (loose in c(-1, 1)) {
    ends <- c(ends, pick(test$end(direction, level, loose), test$end(direction, max(level, 0.05), loose)))
  }
  for (effect in if (q$agrees == 1) unique(c(-least, 0, least)) else c()) {
    p <- p_of(test, effect); held <- pick(ends, effect)
    left_out <- if (direction * (effect - test$effect) > 0) back(ends, effect) else ends
    ends <- if (p[1] - p[2] > q$narrow) held else if (p[1] + p[2] <= q$wide) left_out else c(held, left_out)
  }
  c(mean(range(ends)), diff(range(ends)) / 2 + 2e-3 * test$step)
}

test_of <- function(q, fill = NULL) {
  lines <- read.csv(q$rewards, colClasses = c(run = "character", task = "character"))
  known <- lines[!is.na(lines$reward) | !is.null(fill), ]
  tasks <- sort(Reduce(intersect, lapply(c(q$arm, q$baseline), function(side) unique(known$task[known$side == side]))))
  units <- as.integer(factor(lines$unit[match(tasks, lines$task)]))
  a <- table_of(lines, q$arm, q$metric, tasks, fill[[q$arm]])
  b <- table_of(lines, q$baseline, q$metric, tasks, fill[[q$baseline]])
  d <- colMeans(a) - colMeans(b)
  single <- max(lines$sample) == 0 && nrow(a) == 1 && nrow(b) == 1
  binary <- single && length(unique(units)) == length(tasks) && all(c(a, b) %in% c(0, 1))
  test <- if (binary) binary_test(d) else flips_test(d, units, q$largest, q$draws)
  if (nrow(a) >= 4 && (!q$trained || nrow(b) >= 4)) {
    if (!q$trained) b <- matrix(colMeans(b), 1)
    test <- recipe_test(test, a, b, units, q$trained == 1, q$level / q$family, q$largest)
  }
  list(test = test, lines = lines)
}

answer <- function(q) {
  made <- test_of(q); test <- made$test; lines <- made$lines
  value <- function(side) {
    mean(rowMeans(table_of(lines, side, q$metric, unique(lines$task), NULL), na.rm = TRUE))
  }
  least <- if (q$claim %in% c("better", "worse")) q$margin else 0
  beyond <- if (least == 0) test$at_zero() else if (abs(test$effect) > least) p_of(test, sign(test$effect) * least) else c(1, 0)
  found <- list(
    before = c(value(q$baseline), 0), after = c(value(q$arm), 0), effect = c(test$effect, 0),
    p_value = beyond, claim_p = claim_p(test, q$claim, q$margin)
  )
  for (side in c("low", "high")) {
    found[[side]] <- interval_end(test, q, if (side == "low") -1 else 1, least)
  }
  missing <- sapply(c(q$arm, q$baseline), function(side) sum(is.na(lines$reward[lines$side == side])))
  if (sum(missing)) for (place in 0:1) {
    fill <- setNames(list(place, 1 - place), c(q$arm, q$baseline))
    found[[sprintf("effect_bounds[%d]", place)]] <- c(test_of(q, fill)$test$effect, 0)
  }
  found$missing_samples <- c(missing[[1]], 0)
  found$baseline_missing_samples <- c(missing[[2]], 0)
  list(test = test, found = found)
}

arguments <- commandArgs(TRUE)
questions <- read.csv(arguments[1], stringsAsFactors = FALSE, na.strings = NULL)
answers <- lapply(seq_len(nrow(questions)), function(i) answer(as.list(questions[i, ])))
for (family in unique(questions$of)) {
  members <- which(questions$of == family)
  p <- sapply(answers[members], function(each) each$found$p_value[1])
  errors <- sapply(answers[members], function(each) each$found$p_value[2])
  corrected <- cbind(p.adjust(p, method = "bonferroni"), length(p) * max(errors))
  if (length(p) > 1 && questions$correction[members[1]] == "westfall-young") {
    corrected <- westfall_young(lapply(answers[members], `[[`, "test"), p, questions$draws[members[1]])
  }
  for (i in seq_along(members)) answers[[members[i]]]$found$p_corrected <- corrected[i, ]
}
rows <- do.call(rbind, lapply(seq_along(answers), function(i) {
  found <- answers[[i]]$found
  data.frame(
    id = questions$id[i], name = names(found), value = sprintf("%.17g", sapply(found, `[`, 1)),
    error = sprintf("%.17g", sapply(found, `[`, 2))
  )
}))
write.csv(rows, arguments[2], row.names = FALSE)
