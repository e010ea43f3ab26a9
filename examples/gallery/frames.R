# R: orders a data frame of a million rows, takes means of groups, and merges these with rows.
set.seed(1)
rows <- 1e6
d <- data.frame(group = sample(1e5, rows, TRUE), value = runif(rows), weight = runif(rows))
o <- d[order(d$value), ]
means <- aggregate(value ~ group, o, mean)
both <- merge(d[1:200000, ], means, by = "group")
cat(nrow(means), "groups;", nrow(both), "rows merged; the middle value has weight", format(o$weight[rows / 2], digits = 8), "\n")
